"""Python functions that the partitioner calls.

The function of ``jax.debug.inspect_array_sharding`` inside of ``jit`` receives the sharding of an array; that of
``custom_partitioning`` partitions a call. JAX's rules write addresses of objects into the program. Here an address is
only used as a key: a function is called only if this process has registered it under that address and it still exists.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from xlakit.errors import UnsupportedError

if TYPE_CHECKING:
    from xlakit.data.shape import Shape
    from xlakit.ir.attributes import Sharding
    from xlakit.ir.instruction import Instruction
    from xlakit.passes.spmd.operations.custom import SplitCall

_functions: weakref.WeakValueDictionary[bytes, Callable[[Any], None]] = weakref.WeakValueDictionary()


def register_functions() -> None:
    """Register the functions that are called with shardings, by the name that JAX's program has for each."""
    from jaxlib import xla_client

    client: Any = xla_client
    theirs: Callable[[Callable[[Any], None]], bytes] = client.encode_inspect_sharding_callback

    def encode_inspect_sharding_callback(function: Callable[[Any], None]) -> bytes:
        written = theirs(function)
        _functions[written] = function
        return written

    client.encode_inspect_sharding_callback = encode_inspect_sharding_callback


def tell(backend_config: str, sharding: Sharding) -> None:
    """Call the function that receives a sharding. A function of another process is not called."""
    from xlakit.formats.hlo_proto.metadata import bytes_of

    function = _functions.get(bytes_of(backend_config))
    if function is not None:
        function(_to_jaxlib(sharding))


def partition(call: Instruction, operands: Sequence[Sharding], results: Sequence[Sharding]) -> SplitCall:
    """The partitioned form of a call of ``custom_partitioning``, given by the function of the call."""
    from xlakit.formats.hlo_proto import read_module
    from xlakit.jax.sources import read_program
    from xlakit.passes.spmd.operations.custom import SplitCall

    module, config = _caller(call)
    shape = _shape(call.shape)
    code, of_operands, of_result = module._custom_partitioning_partition(
        *_operands(call, operands), shape, _packed(shape, results), config
    )
    return SplitCall(
        read_module(read_program(code, "mlir")), [*map(_from_jaxlib, of_operands)], _unpacked(call, of_result)
    )


def infer(call: Instruction, operands: Sequence[Sharding]) -> Sequence[Sharding] | None:
    """The shardings of the results of a call of ``custom_partitioning`` by ``infer_sharding_from_operands``.

    Only programs for GSPMD have such a function, those for Shardy a rule.
    """
    module, config = _caller(call)
    if module._sharding_callbacks[config].infer_sharding_from_operands is None:
        return None
    found = module._custom_partitioning_infer_sharding_from_operands(
        *_operands(call, operands), _shape(call.shape), config
    )
    return _unpacked(call, found)


def take(call: Instruction, results: Sequence[Sharding]) -> Sequence[Sharding]:
    """The shardings of the results by ``propagate_user_sharding``, from those that their users have: these without."""
    module, config = _caller(call)
    shape = _shape(call.shape)
    return _unpacked(call, module._custom_partitioning_propagate_user_sharding(_packed(shape, results), shape, config))


def _caller(call: Instruction) -> tuple[Any, bytes]:
    """JAX's module of ``custom_partitioning``, and its key for the functions of a call."""
    from xlakit.formats.hlo_proto.metadata import bytes_of

    module: Any = sys.modules.get("jax._src.custom_partitioning")
    config = bytes_of(call.annotations.backend_config or "")
    if module is None or config not in module._sharding_callbacks:
        raise UnsupportedError(
            "a call of jax's custom_partitioning whose function is in another process, or gone",
            hint="compile the program in the process that has traced it",
        )
    return module, config


def _operands(call: Instruction, shardings: Sequence[Sharding]) -> tuple[list[Any], list[Any]]:
    return [_shape(o.shape) for o in call.operands], [*map(_to_jaxlib, shardings)]


def _packed(shape: Any, shardings: Sequence[Sharding]) -> Any:
    """The shardings of results as jaxlib's sharding of a tuple, if there is one."""
    from jaxlib import xla_client

    client: Any = xla_client
    found = [*map(_to_jaxlib, shardings)]
    return client.HloSharding.tuple_sharding(shape, found) if shape.is_tuple() else found[0]


def _unpacked(call: Instruction, sharding: Any) -> list[Sharding]:
    return [*map(_from_jaxlib, sharding.tuple_elements() if call.shape.is_tuple else [sharding])]


def _shape(shape: Shape) -> Any:
    """A shape as jaxlib's Shape."""
    from jaxlib import xla_client

    client: Any = xla_client
    if shape.is_tuple:
        return client.Shape.tuple_shape([*map(_shape, shape.tuple_shapes)])
    return client.Shape.array_shape(shape.element_type.dtype, shape.dimensions)


def _to_jaxlib(sharding: Sharding) -> Any:
    from jaxlib import xla_client

    from xlakit.formats.hlo_proto import schema
    from xlakit.formats.hlo_proto.shardings import write_sharding

    proto = schema.new("OpSharding")
    write_sharding(sharding, proto)
    client: Any = xla_client
    theirs = client.OpSharding()
    theirs.ParseFromString(proto.SerializeToString())
    return client.HloSharding.from_proto(theirs)


def _from_jaxlib(sharding: Any) -> Sharding:
    from xlakit.formats.hlo_proto import schema
    from xlakit.formats.hlo_proto.shardings import read_sharding

    return read_sharding(schema.parse("OpSharding", sharding.to_proto().SerializeToString()))


def register_with_partitioner() -> None:
    """Register these functions with the partitioner."""
    from xlakit.passes.spmd.operations.custom import PARTITIONERS, Partitioner
    from xlakit.passes.spmd.operations.inspection import register_inspector

    register_inspector(tell)
    PARTITIONERS["CustomSPMDPartitioning"] = Partitioner(partition, infer, take)
