"""OriginalValueRecoveryTableProto, which HLO text has as ``origin_recovery_table`` on its first line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xlakit.errors import UnsupportedError, XlakitError
from xlakit.formats.hlo_text.recovery import RECOVERY_TABLE, Recovery, parse_recovery_table, print_recovery_table
from xlakit.ir.attributes import OriginalArray
from xlakit.ir.instruction import HloModule

__all__ = ["RECOVERY_TABLE", "read_recovery_table", "write_recovery_table"]


def read_recovery_table(proto: Any, read_module: Callable[[Any], HloModule]) -> str:
    """The table as HLO text. Raises FormatError, ShapeError, UnsupportedError."""
    entries: list[Recovery] = []
    for entry in proto.entries:
        module = ""
        if entry.HasField("recovery_module"):
            # Each module in a module would be quoted once more, in texts that double in length with every level.
            if entry.recovery_module.HasField("original_value_recovery_table"):
                raise _nested()
            module = read_module(entry.recovery_module).to_text()
        entries.append(Recovery(_read_array(entry.old_original_array), _read_array(entry.new_original_array), module))
    return print_recovery_table(entries)


def write_recovery_table(text: str, proto: Any, write_module: Callable[[HloModule], Any]) -> None:
    """Fill the proto with the table of HLO text. Raises FormatError, ShapeError, UnsupportedError."""
    proto.SetInParent()
    for number, recovery in enumerate(parse_recovery_table(text)):
        entry = proto.entries.add()
        _write_array(recovery.old, entry.old_original_array)
        _write_array(recovery.new, entry.new_original_array)
        if not recovery.module:
            continue
        try:
            module = HloModule.from_text(recovery.module, name=f"<{RECOVERY_TABLE}, entry {number}>")
        except XlakitError as error:
            raise error.at(operation=RECOVERY_TABLE) from None
        if any(name == RECOVERY_TABLE for name, _ in module.header):
            raise _nested()
        entry.recovery_module.CopyFrom(write_module(module))


def _nested() -> UnsupportedError:
    return UnsupportedError(
        f"a module in {RECOVERY_TABLE} has one of its own", hint="move the inner entries to the table of the module"
    )


def _read_array(proto: Any) -> OriginalArray:
    return proto.instruction_name, tuple(proto.shape_index)


def _write_array(array: OriginalArray, proto: Any) -> None:
    name, index = array
    proto.instruction_name = name
    proto.shape_index.extend(index)
