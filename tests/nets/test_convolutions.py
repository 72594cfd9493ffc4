"""Generated dilated convolutions: they take the ways that few others take, and agree with the interpreter."""

from fuzz.convolutions import judge, program
from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.kernels.conv.convolution import plan_convolution
from xlakit.ir.instruction import HloModule
from xlakit.ops.convolution import Convolution


def _plans(seed, count):
    for number in range(count):
        root = HloModule.from_text(program(seed, number).text).entry.root
        assert isinstance(root.op, Convolution)
        left, right = root.operands
        try:
            yield root.op, plan_convolution(root.op, left.shape, right.shape, root.shape)
        except DeclinedError as error:
            assert "nibbles" in str(error)


def test_the_ways_that_dilated_convolutions_take_are_common():
    seen = list(_plans(7, 240))
    phases = [plan for _, plan in seen if len(plan.products) > 1]
    converted = [plan for plan in phases if plan.converted is not None]
    # The kernel is the right operand where positions are the rows.
    both = [plan for plan in converted if len({product.arrays[1] == 1 for product, _ in plan.products}) == 2]
    assert len(phases) > 50
    assert len(converted) > 8
    assert len(both) > 2
    assert sum(op.feature_group_count > 1 for op, _ in seen) > 15
    assert sum(op.batch_group_count > 1 for op, _ in seen) > 15
    shared = [plan for _, plan in seen if any(product.interleaved > 1 for product, _ in plan.products)]
    assert len(shared) > 2


def test_dilated_convolutions_agree():
    assert not [fault for number in range(8) if (fault := judge(program(5, number)))]


def test_a_program_is_that_of_its_seed_and_number():
    assert program(3, 4).text == program(3, 4).text != program(4, 4).text
