"""Arguments are converted by the annotations of a function, or refused by the parameter's name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import xlakit as xla
from xlakit.arguments import converting


@dataclass(frozen=True)
class Record:
    numbers: tuple[int, ...] = ()
    inner: "Record | None" = None


@converting
def take(number: int = 0, *, values: Sequence[int] = (), pairs: Sequence[tuple[int, int]] = (), flag: bool = False):
    return number, values, pairs, flag


@converting
def take_either(value: int | Sequence[int] | str | None):
    return value


@converting
def take_number(value: bool | int | float | complex | np.generic):
    return value


@converting
def take_record(record: Record, function: Callable[..., Any] = len, names: Mapping[str, int] = {}):
    return record, function, names


def test_integers_become_ints_and_sequences_tuples():
    number, values, pairs, flag = take(np.int8(3), values=np.arange(2), pairs=([i, i] for i in (1, 2)), flag=np.True_)
    assert (number, values, pairs, flag) == (3, (0, 1), ((1, 1), (2, 2)), True)
    assert [type(v) for v in (number, values[0], flag)] == [int, int, bool]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"number": 1.0}, "number must be an integer, got 1.0 of type float"),
        ({"number": True}, "number must be an integer, got True"),
        ({"number": None}, "number must be an integer, got None"),
        ({"number": 2**63}, "number must be an integer that int64 holds"),
        ({"values": "12"}, "values must be a sequence of integers, got '12' of type str"),
        ({"values": {1, 2}}, "values must be a sequence of integers"),
        ({"values": [1, "a"]}, r"values\[1\] must be an integer, got 'a'"),
        ({"values": 3}, r"hint: write \[3\]"),
        ({"pairs": [(1, 2, 3)]}, r"pairs\[0\] must be \(an integer, an integer\)"),
        ({"pairs": [(1, 0.5)]}, r"pairs\[0\]\[1\] must be an integer, got 0.5"),
        ({"flag": 1}, "flag must be True or False, got 1"),
        ({"values": len}, "values must be a sequence of integers, got <built-in function len>"),
        ({"values": lambda: 1}, r"hint: write \[function, \.\.\]"),
        ({"number": 2.0}, "hint: write 2$"),
        ({"number": np.True_}, "hint: write 1$"),
        ({"missing": 1}, "unexpected keyword argument 'missing'"),
    ],
)
def test_what_does_not_fit_is_named(given, said):
    with pytest.raises(xla.ArgumentError, match=said):
        take(**given)


def test_hints_say_how_a_value_is_made():
    with pytest.raises(xla.ArgumentError, match=r"hint: write Record\(numbers, inner\)"):
        take_record(((1,), None))
    with pytest.raises(xla.ArgumentError, match=r"hint: make one with xlakit.make_shape\(xlakit.F32, "):
        xla.parameter(xla.XlaBuilder("b"), 0, (2, 3))
    with pytest.raises(xla.ArgumentError, match=r"hint: decode\(\) gives bytes as text"):
        xla.HloModule.from_text(b"HloModule m")


def test_a_wrong_number_of_arguments_lists_the_parameters():
    with pytest.raises(xla.ArgumentError, match="too many positional arguments"):
        take(1, 2, 3)
    with pytest.raises(xla.ArgumentError, match=r"missing a required argument.*\n.*\(value\)"):
        take_either()


def test_unions_take_the_first_that_fits():
    assert [take_either(v) for v in (np.int32(1), [1, 2], "ab", None)] == [1, (1, 2), "ab", None]
    with pytest.raises(xla.ArgumentError, match=r"value\[1\] must be an integer"):
        take_either([1, 2.5])
    with pytest.raises(xla.ArgumentError, match=r"an integer, a sequence of integers, a string or None, got 1\.5"):
        take_either(1.5)
    with pytest.raises(xla.ArgumentError, match="UTF-8"):
        take_either("\ud800")


def test_numbers_keep_their_type_where_many_are_welcome():
    for value in (True, 1, 2**70, 1.5, 1j, np.float64(1), np.int8(1)):
        assert take_number(value) is value


def test_records_are_converted_field_by_field():
    record, _, names = take_record(Record([np.int64(1)], Record(range(2))), names={"a": np.int8(1)})
    assert record == Record((1,), Record((0, 1)))
    assert names == {"a": 1}
    for given, said in (
        (Record(inner=Record("a")), "record.inner.numbers must be a sequence"),
        (None, "record must be a Record"),
    ):
        with pytest.raises(xla.ArgumentError, match=said):
            take_record(given)
    with pytest.raises(xla.ArgumentError, match="function must be a function"):
        take_record(Record(), 3)
    with pytest.raises(xla.ArgumentError, match=r"names\['a'\] must be an integer"):
        take_record(Record(), names={"a": "b"})
