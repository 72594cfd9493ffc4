"""What is known while code is written: no code is written for it."""

import pytest

from xlakit.cpu.llvm import I1, I32, VOID, Module

NUMBERS = (-(2**31), -7, -1, 0, 1, 2, 7, 2**31 - 1, 2**31, 2**32 - 1)
COMPARISONS = {
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
}


def signed(number):
    return (number + 2**31) % 2**32 - 2**31


def unsigned(number):
    return number % 2**32


@pytest.fixture
def fn():
    return Module("m").function("f", VOID, [I1, I32])


def test_comparisons_of_constants(fn):
    for x in NUMBERS:
        for y in NUMBERS:
            a, b = fn.constant(I32, x), fn.constant(I32, y)
            for name, holds in COMPARISONS.items():
                prefixes = ("",) if name in ("eq", "ne") else ("s", "u")
                for prefix in prefixes:
                    read = unsigned if prefix == "u" else signed
                    assert a.compare(prefix + name, b).constant == holds(read(x), read(y))
            assert signed(a.smin(b).constant) == min(signed(x), signed(y))
            assert signed(a.smax(b).constant) == max(signed(x), signed(y))
            assert unsigned(a.umin(b).constant) == min(unsigned(x), unsigned(y))
            assert unsigned(a.umax(b).constant) == max(unsigned(x), unsigned(y))


@pytest.mark.parametrize("opcode", ["sdiv", "udiv", "srem", "urem"])
def test_quotients_are_folded_where_signs_do_not_matter(fn, opcode):
    for x in NUMBERS:
        for y in NUMBERS:
            found = fn.constant(I32, x).integer(opcode, fn.constant(I32, y)).constant
            if 0 <= x < 2**31 and 0 < y < 2**31:
                assert found == (x // y if "div" in opcode else x % y)
            else:
                # What is divided by 1 stays as it is.
                assert found is None or y == 1


def test_conditions(fn):
    condition, number = fn.parameters
    yes, no = fn.constant(I1, True), fn.constant(I1, False)
    assert (condition & yes) is condition
    assert (yes & condition) is condition
    assert (condition & no).text == (no & condition).text == "false"
    assert (condition | no) is condition
    assert (condition | yes).text == "true"
    assert (~yes).text == "false"
    assert (~no).text == "true"
    assert (condition ^ no) is condition
    assert fn.select(yes, number, fn.constant(I32, 3)) is number
    assert fn.if_else(no, lambda: pytest.fail("this side is written"), lambda: [number]) == (number,)
    fn.ret()
    assert fn.text().count("\n") == 4
