"""Arrays that are made of the parts on their devices, with JAX's constructor."""

from types import SimpleNamespace

import numpy as np
import pytest

from xlakit.compat import xla_client as xc

CLIENT = xc.make_cpu_client()
(DEVICE,) = CLIENT.devices()
WHERE = xc.SingleDeviceSharding(DEVICE)
VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


def aval(shape=(2, 3), dtype=np.float32, weak_type=False):
    return SimpleNamespace(shape=shape, dtype=np.dtype(dtype), weak_type=weak_type)


def test_an_array_has_the_memory_of_its_part():
    part, said = CLIENT.buffer_from_pyval(VALUES), aval(weak_type=True)
    array = xc.ArrayImpl(said, WHERE, [part], committed=True, _skip_checks=True)
    assert array.aval is said and array.sharding is WHERE and array._committed and array.weak_type
    assert not part._committed and not part.weak_type
    assert array.unsafe_buffer_pointer() == part.unsafe_buffer_pointer()
    assert array.shape == (2, 3) and array.dtype == np.float32 and array.device is DEVICE
    assert np.array_equal(np.asarray(array), VALUES) and np.array_equal(array + array, VALUES * 2)
    part.delete()
    assert array.is_deleted()


def test_a_transposed_part_is_an_array_of_its_dimensions():
    transposed = CLIENT.buffer_from_pyval(VALUES).in_order((1, 0))
    array = xc.ArrayImpl(aval(), WHERE, [transposed], False)
    assert array.shape == (2, 3) and not array._committed and np.array_equal(np.asarray(array), VALUES)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((), TypeError, "incompatible function arguments"),
        ((aval(), WHERE, ["part"]), TypeError, "incompatible function arguments"),
        ((aval(), WHERE, "part", True), TypeError, "incompatible function arguments"),
        ((aval(), WHERE, ("part",), True), TypeError, "incompatible function arguments"),
        ((aval(), WHERE, ["part"], 1), TypeError, "incompatible function arguments"),
        ((1, WHERE, ["part"], True), AttributeError, "'int' object has no attribute"),
        ((aval(), 1, ["part"], True), AttributeError, "_internal_device_list"),
        ((aval(), WHERE, [VALUES], True), TypeError, "takes arrays of this package"),
        ((aval(), WHERE, [], True), ValueError, "Number of addressable output shards .*: 1 vs. 0"),
        ((aval(), WHERE, ["part", "part"], True), ValueError, "two of the arrays are on one device"),
        ((aval((3, 2)), WHERE, ["part"], True), xc.XlaRuntimeError, "INVALID_ARGUMENT: a part of float32"),
        ((aval(dtype=np.int32), WHERE, ["part"], True), xc.XlaRuntimeError, "INVALID_ARGUMENT: a part of float32"),
    ],
)
def test_parts_that_make_no_array(arguments, error, message):
    part = CLIENT.buffer_from_pyval(VALUES)

    def filled(argument):
        if isinstance(argument, (list, tuple)):
            return type(argument)(map(filled, argument))
        return part if isinstance(argument, str) else argument

    given = map(filled, arguments)
    with pytest.raises(error, match=message):
        xc.ArrayImpl(*given)
