"""CompiledMemoryStats: the memory of a run of a program."""

from __future__ import annotations

from xlakit.compat.xla_client.binding import unconstructed
from xlakit.execution.analysis import MemoryAnalysis
from xlakit.ir.instruction import HloModule as OurModule

_KINDS = ("generated_code", "argument", "output", "alias", "temp")
_NAMES = tuple(f"{prefix}{kind}_size_in_bytes" for prefix in ("", "host_") for kind in _KINDS)

# The bytes of an address.
_ADDRESS = 8


class CompiledMemoryStats:
    """Bytes of code, arguments, results, results in the memory of arguments, and temporary values.

    The device's memory is the host's; the numbers of a separate host are 0.
    """

    __slots__ = ("_module", *_NAMES)

    @unconstructed
    def __init__(self, analysis: MemoryAnalysis, module: OurModule) -> None:
        self._module = module
        for name in _NAMES:
            setattr(self, name, 0 if name.startswith("host_") else getattr(analysis, name))
        # jaxlib's results are in a table of their addresses, if there are several.
        results = sum(1 for _ in module.program_shape.result.leaves())
        self.output_size_in_bytes += _ADDRESS * results * (results > 1)

    @property
    def serialized_hlo_proto(self) -> bytes:
        """The program as a serialized HloProto."""
        from xlakit.formats.hlo_proto import schema

        message = schema.new("HloProto")
        message.hlo_module.ParseFromString(self._module.to_proto())
        return message.SerializeToString()

    def __str__(self) -> str:
        return f"CompiledMemoryStats({', '.join(f'{name}={getattr(self, name)}' for name in _NAMES)})"
