"""CompiledMemoryStats: the memory of a run of a program."""

from __future__ import annotations

from xlakit.compat.xla_client.binding import unconstructed
from xlakit.execution.analysis import MemoryAnalysis
from xlakit.ir.instruction import HloModule as OurModule

_HOST = ("generated_code", "argument", "output", "alias", "temp")


class CompiledMemoryStats:
    """Bytes of code, arguments, results, results in the memory of arguments, and temporary values.

    The device's memory is the host's; the numbers of a separate host are 0.
    """

    __slots__ = (
        "_module",
        "alias_size_in_bytes",
        "argument_size_in_bytes",
        "generated_code_size_in_bytes",
        "host_alias_size_in_bytes",
        "host_argument_size_in_bytes",
        "host_generated_code_size_in_bytes",
        "host_output_size_in_bytes",
        "host_temp_size_in_bytes",
        "output_size_in_bytes",
        "temp_size_in_bytes",
    )

    @unconstructed
    def __init__(self, analysis: MemoryAnalysis, module: OurModule) -> None:
        self._module = module
        self.generated_code_size_in_bytes = analysis.generated_code_size_in_bytes
        self.argument_size_in_bytes = analysis.argument_size_in_bytes
        self.output_size_in_bytes = analysis.output_size_in_bytes
        self.alias_size_in_bytes = analysis.alias_size_in_bytes
        self.temp_size_in_bytes = analysis.temp_size_in_bytes
        for name in _HOST:
            setattr(self, f"host_{name}_size_in_bytes", 0)

    @property
    def serialized_hlo_proto(self) -> bytes:
        """The program as a serialized HloProto."""
        from xlakit.formats.hlo_proto import schema

        message = schema.new("HloProto")
        message.hlo_module.ParseFromString(self._module.to_proto())
        return message.SerializeToString()

    def __str__(self) -> str:
        names = [f"{prefix}{name}_size_in_bytes" for prefix in ("", "host_") for name in _HOST]
        return f"CompiledMemoryStats({', '.join(f'{name}={getattr(self, name)}' for name in names)})"
