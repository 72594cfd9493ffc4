"""LoadedExecutable and the results of its runs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, cast

from xlakit.compat.xla_client.binding import incompatible, no_constructor, unconstructed
from xlakit.compat.xla_client.cost import properties_of
from xlakit.compat.xla_client.errors import as_status, status_errors, with_status
from xlakit.compat.xla_client.hlo_module import HloModule
from xlakit.compat.xla_client.runtime.array import ArrayImpl
from xlakit.compat.xla_client.runtime.device import MEMORY_KIND, Device
from xlakit.compat.xla_client.runtime.host_callbacks import HostCallback, served
from xlakit.compat.xla_client.runtime.memory_stats import CompiledMemoryStats
from xlakit.compat.xla_client.runtime.pjrt_layout import PjRtLayout
from xlakit.compat.xla_client.runtime.requested_layouts import leaf_layouts, orders_of, with_logical_shapes
from xlakit.compat.xla_client.runtime.tracebacks import Traceback
from xlakit.compat.xla_client.sharding import OpSharding
from xlakit.compat.xla_client.text.numbering import compiled_module
from xlakit.data.nesting import leaves_of, nested
from xlakit.errors import ArgumentError, DeletedBufferError
from xlakit.ir.attributes import Sharding
from xlakit.ir.instruction import HloModule as OurModule
from xlakit.runtime.buffer import Buffer
from xlakit.runtime.executable import LoadedExecutable as OurExecutable


class Token:
    """A token that is ready when a run is done."""

    __slots__ = ("_arrays",)

    _arrays: Sequence[ArrayImpl]

    __init__ = no_constructor

    @classmethod
    def of(cls, arrays: Sequence[ArrayImpl]) -> Token:
        """The token of a run that is done when these of its results are there."""
        made = cls.__new__(cls)
        made._arrays = list(arrays)
        return made

    def block_until_ready(self) -> None:
        """Wait for the run. Raises XlaRuntimeError with its error."""
        for array in self._arrays:
            with status_errors():
                array.wrapped.block_until_ready()


class ShardedToken:
    """The tokens of a run on several devices."""

    __slots__ = ("_tokens",)

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = list(tokens)

    def block_until_ready(self) -> None:
        """Wait for the run on all devices."""
        for token in self._tokens:
            token.block_until_ready()

    def get_token(self, device_id: int, /) -> Token:
        """The token of one device, by its position among those of the run."""
        if device_id < 0:
            raise IndexError(f"there is no token {device_id}")
        return self._tokens[device_id]


class ExecuteResults:
    """The results of a run: for each result, an array on each device. They can be taken out once, as in jaxlib."""

    __slots__ = ("_arrays", "_taken", "_tokens", "_tokens_taken")

    def __init__(self, arrays: Sequence[Sequence[ArrayImpl]], *, with_tokens: bool) -> None:
        # By device, then by result.
        self._arrays = [list(part) for part in arrays]
        self._taken = self._tokens_taken = False
        # Without tokens requested, the tokens are ready at once.
        self._tokens = [Token.of(part if with_tokens else ()) for part in self._arrays]

    def __len__(self) -> int:
        if self._taken:
            raise ValueError("the arrays of these ExecuteResults are taken already: keep the lists of the first call")
        return len(self._arrays[0]) if self._arrays else 0

    def disassemble_into_single_device_arrays(self) -> list[list[ArrayImpl]]:
        """For each result a list of its arrays, one for each device. Raises ValueError when called again."""
        results = self.disassemble_prefix_into_single_device_arrays(len(self))
        self._taken = True
        return results

    def disassemble_prefix_into_single_device_arrays(self, n: int, /) -> list[list[ArrayImpl]]:
        """The first ``n`` results, which are no more among those that are left."""
        if not 0 <= n <= len(self):
            raise ValueError(f"there are {len(self)} results, {n} are asked for")
        results = [[part[i] for part in self._arrays] for i in range(n)]
        self._arrays = [part[n:] for part in self._arrays]
        return results

    def consume_with_handlers(self, handlers: Sequence[Callable[[list[ArrayImpl]], Any]], /) -> list[Any]:
        """What a function for each result makes of the list of its arrays. Raises ValueError for another number."""
        results = self.disassemble_into_single_device_arrays()
        if len(handlers) != len(results):
            raise ValueError(f"{len(handlers)} handlers are given for {len(results)} results")
        return [handler(result) for handler, result in zip(handlers, results, strict=True)]

    def consume_token(self) -> ShardedToken:
        """The tokens of the run. Raises ValueError when called again."""
        if self._tokens_taken:
            raise ValueError("the token of these ExecuteResults is taken already: keep that of the first call")
        self._tokens_taken = True
        return ShardedToken(self._tokens)


class LoadedExecutable:
    """A program that devices run. Its parameters and results are flat: tuples are taken apart."""

    __slots__ = (
        "__weakref__",
        "_callbacks",
        "_client",
        "_devices",
        "_kept",
        "_orders",
        "_result_orders",
        "_traceback",
        "given",
        "options",
        "wrapped",
    )

    @unconstructed
    def __init__(
        self,
        client: Any,
        wrapped: OurExecutable,
        options: Any,
        given: OurModule,
        callbacks: Sequence[HostCallback] = (),
    ) -> None:
        self._client = client
        self._callbacks = callbacks
        self.wrapped = wrapped
        # The program before partitioning; its entry layout has the layouts of arguments and results.
        self.given = given
        shape = given.program_shape
        self._orders, self._result_orders = orders_of(shape.parameters), orders_of([shape.result])
        self.options = options
        self._devices = [client.devices()[device.id] for device in wrapped.local_devices()]
        self._traceback = Traceback.get_traceback()
        self._kept: list[object] = []

    @property
    def client(self) -> Any:
        """The client whose devices run it."""
        return self._client

    @property
    def traceback(self) -> Traceback | None:
        """Where it was compiled."""
        return self._traceback

    @property
    def fingerprint(self) -> bytes:
        """Bytes that tell programs apart."""
        return hashlib.sha256(self.wrapped.module.to_proto()).hexdigest().encode()

    def local_devices(self) -> list[Device]:
        """The devices of this process that run it."""
        return list(self._devices)

    def keep_alive(self, value: object, /) -> None:
        """Keep an object as long as the executable."""
        self._kept.append(value)

    def delete(self) -> None:
        """Does nothing, as in jaxlib: a program that is still referenced can be called."""

    # -- running ---------------------------------------------------------------------------------

    def execute(self, arguments: Sequence[ArrayImpl], device: Device | None = None) -> list[ArrayImpl]:
        """Run the program on its one device; gives its results, which may still be computed."""
        del device
        return [arrays[0] for arrays in self.execute_sharded(arguments).disassemble_into_single_device_arrays()]

    def execute_with_token(
        self, arguments: Sequence[ArrayImpl], device: Device | None = None
    ) -> tuple[list[ArrayImpl], Token]:
        """Run the program on its one device; gives its results and a token that is ready when it is done."""
        del device
        results = self.execute_sharded(arguments, with_tokens=True)
        arrays = [arrays[0] for arrays in results.disassemble_into_single_device_arrays()]
        return arrays, results.consume_token().get_token(0)

    def execute_sharded(
        self, arguments: Sequence[ArrayImpl] | Sequence[Sequence[ArrayImpl]], with_tokens: bool = False
    ) -> ExecuteResults:
        """Run the program on all of its devices.

        arguments: for each argument a list of its arrays, one for each device; or, on one device, its array.

        Raises TypeError for what is no array, XlaRuntimeError for arguments that do not fit.
        """
        if isinstance(cast("object", arguments), ArrayImpl):
            raise incompatible("execute_sharded", "arguments are a sequence, not one array")
        given = [self._on_devices(argument) for argument in arguments]
        with status_errors():
            shards = [[argument[i] for argument in given] for i in range(len(self._devices))]
            if any(self._orders) or any(array.order for shard in shards for array in shard):
                shards = [self._in_order(shard) for shard in shards]
            buffers = [[array.wrapped for array in shard] for shard in shards]
            self._check(buffers)
            nested = [self._nested(part) for part in buffers]
            donate = self._donated(shards)
            runs = self._called_back(nested, donate) if self._callbacks else self._run(nested, donate)
        pairs = zip(self._devices, runs, strict=True)
        return ExecuteResults(
            [
                [
                    ArrayImpl.of(device, buffer, order)
                    for buffer, order in zip(leaves_of(run), self._result_orders, strict=True)
                ]
                for device, run in pairs
            ],
            with_tokens=with_tokens,
        )

    def _run(self, arguments: Sequence[Sequence[Any]], donate: list[int] | None) -> Sequence[Any]:
        if len(self._devices) == 1:
            return [self.wrapped.execute(arguments[0], donate=donate)]
        return self.wrapped.execute_sharded(arguments, donate=donate)

    def _called_back(self, arguments: Sequence[Sequence[Any]], donate: list[int] | None) -> Sequence[Any]:
        """Run the program to its end, and answer its callbacks."""
        devices = [device.wrapped for device in self._devices]
        with served(self._client.wrapped.execution_context, [device.id for device in devices], self._callbacks):
            runs = self._run(arguments, donate)
            for device, run in zip(devices, runs, strict=True):
                for buffer in leaves_of(run):
                    buffer.block_until_ready()
                device.synchronize_all_activity()
        return runs

    def execute_sharded_on_local_devices(self, arguments: Sequence[Sequence[ArrayImpl]]) -> list[list[ArrayImpl]]:
        """As :meth:`execute_sharded`, with the arrays of each result in a list."""
        return self.execute_sharded(arguments).disassemble_into_single_device_arrays()

    def _donated(self, shards: Sequence[Sequence[ArrayImpl]]) -> list[int] | None:
        """The parameters with aliases whose arrays have no views; None if no parameter has an alias."""
        aliases = self.wrapped.module.input_output_alias
        if not aliases:
            return None
        owners = [n for n, shape in enumerate(self.wrapped.module.program_shape.parameters) for _ in shape.leaves()]
        viewed = {owner for shard in shards for owner, array in zip(owners, shard, strict=True) if array.is_viewed()}
        return sorted({alias.parameter_number for alias in aliases} - viewed)

    def _in_order(self, arrays: Sequence[ArrayImpl]) -> list[ArrayImpl]:
        """The arguments in the layouts that the program takes; arrays in other layouts are copied."""
        if len(arrays) != len(self._orders):
            return list(arrays)
        return [array.in_order(order) for array, order in zip(arrays, self._orders, strict=True)]

    def _on_devices(self, argument: object) -> list[ArrayImpl]:
        """The arrays of an argument, one for each device, in the order of the devices."""
        arrays = [argument] if isinstance(argument, ArrayImpl) else argument
        if not isinstance(arrays, (list, tuple)) or not all(isinstance(a, ArrayImpl) for a in cast("Any", arrays)):
            raise TypeError(
                "incompatible function arguments: an argument is an array of this package or a list of them, "
                f"not {type(argument).__name__}"
            )
        found = cast("Sequence[ArrayImpl]", arrays)
        if len(found) != len(self._devices):
            raise as_status(
                ArgumentError(
                    f"an argument has {len(found)} arrays, '{self.wrapped.name}' runs on {len(self._devices)} devices",
                    hint="give an array for each device",
                ),
            )
        return list(found)

    def _check(self, shards: Sequence[Sequence[Buffer]]) -> None:
        """Raise XlaRuntimeError for arguments that do not fit or are no more."""
        name = self.wrapped.name
        leaves = [leaf for shape in self.wrapped.module.program_shape.parameters for _, leaf in shape.leaves()]
        for replica, buffers in enumerate(shards):
            if len(buffers) != len(leaves):
                raise as_status(
                    ArgumentError(
                        f"'{name}' takes {len(leaves)} arrays, got {len(buffers)}",
                        hint="give an array for each parameter, and for each element of a parameter that is a tuple",
                    ),
                )
            for number, (buffer, leaf) in enumerate(zip(buffers, leaves, strict=True)):
                try:
                    buffer.check_usable()
                except DeletedBufferError as error:
                    raise as_status(error) from error
                device = self._devices[replica]
                if buffer.device is not device.wrapped:
                    raise as_status(
                        ArgumentError(
                            f"argument {number} of replica {replica} is on device TFRT_CPU_{buffer.device.id}, "
                            f"the replica on device {device}, of this client or another one",
                            hint="copy it with copy_to_device",
                        )
                    )
                if leaf.is_array and not leaf.is_dynamic and buffer.shape.byte_size != leaf.byte_size:
                    raise as_status(
                        ArgumentError(
                            f"'{name}' takes {leaf.without_layout()}, {leaf.byte_size} bytes, as parameter {number}, "
                            f"got {buffer.shape.without_layout()}, {buffer.shape.byte_size} bytes"
                        )
                    )

    def _nested(self, buffers: Sequence[Buffer]) -> list[Any]:
        """Flat arguments as the parameters of the program have them."""
        shapes = self.wrapped.module.program_shape.parameters
        rest = iter(buffers)
        return [nested(shape, rest) for shape in shapes]

    # -- properties of the program ---------------------------------------------------------------

    def hlo_modules(self) -> list[HloModule]:
        """The program in a list, as the compiler's passes made it; as it was given where it is interpreted."""
        with status_errors():
            compiled = with_logical_shapes(self._optimized(), self.given.program_shape)
            return [HloModule.of(compiled_module(compiled))]

    def _optimized(self) -> OurModule:
        optimized = getattr(self.wrapped.compiled, "optimized_module", None)
        return self.wrapped.module if optimized is None else optimized()

    @with_status
    def cost_analysis(self) -> dict[str, Any]:
        """The cost of a run: "flops", "transcendentals", "bytes accessed", and bytes of each operand."""
        return properties_of(self._optimized())

    @with_status
    def get_compiled_memory_stats(self) -> CompiledMemoryStats:
        """The memory of a run."""
        return CompiledMemoryStats(self.wrapped.compiled.memory_analysis(), self.wrapped.module)

    def size_of_generated_code_in_bytes(self) -> int:
        """The bytes of machine code; 0 where they are not known."""
        with status_errors():
            return self.wrapped.compiled.memory_analysis().generated_code_size_in_bytes

    def get_parameter_layouts(self) -> list[PjRtLayout]:
        """The layouts of all arrays that it takes."""
        return [PjRtLayout.of(layout) for layout in leaf_layouts(self.given.program_shape.parameters)]

    def get_output_layouts(self) -> list[PjRtLayout]:
        """The layouts of all arrays that it gives."""
        return [PjRtLayout.of(layout) for layout in leaf_layouts([self.given.program_shape.result])]

    def get_output_memory_kinds(self) -> list[list[str]]:
        """The kinds of memory of all arrays that it gives."""
        return [[MEMORY_KIND for _ in self.wrapped.module.program_shape.result.leaves()]]

    def get_parameter_shardings(self) -> list[OpSharding] | None:
        """The shardings of the parameters; None if one has none."""
        found = _shardings([parameter.annotations.sharding for parameter in self.given.entry.parameters])
        return found or _shardings(self.wrapped.module.spmd_parameters_shardings or ())

    def get_output_shardings(self) -> list[OpSharding] | None:
        """The shardings of the results; None if there are none."""
        whole = self.given.entry.root.annotations.sharding or self.wrapped.module.spmd_output_sharding
        return _shardings(list(whole.elements) if whole is not None and whole.elements else [whole])

    def serialize(self) -> bytes:
        """The program in the form that :meth:`Client.deserialize_executable` takes."""
        return self._client.serialize_executable(self)


def _shardings(found: Sequence[Sharding | None]) -> list[OpSharding] | None:
    known = [sharding for sharding in found if sharding is not None]
    return [OpSharding.of(sharding) for sharding in known] if known and len(known) == len(found) else None
