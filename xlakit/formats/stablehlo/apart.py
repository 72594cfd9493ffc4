"""Bytecode of files, which may be damaged: MLIR reads it in a process of its own first.

On damaged bytecode MLIR does not always fail: it may write outside of its memory, end the process, or not return.
"""

from __future__ import annotations

from typing import Final

from xlakit.child_process import Child, Limits, Unanswered, serve
from xlakit.errors import FormatError, Location, UnsupportedError, XlakitError
from xlakit.formats.stablehlo import check_jaxlib, read_stablehlo
from xlakit.formats.stablehlo.modules import try_to_read
from xlakit.ir.instruction import HloModule
from xlakit.settings import memory_limit

_SECONDS: Final = 60.0
_HINT: Final = "copy it again, or write it with stablehlo.serialize_portable_artifact"


def read_bytecode(program: bytes, name: str) -> HloModule:
    """The HLO of bytecode whose origin is not known; ``name`` stands for the file in errors.

    What this project's own reader of portable artifacts understands has no damage in its encoding: it is read at once.

    Raises what :func:`read_stablehlo` raises, and FormatError where MLIR does not survive the bytecode.
    """
    if try_to_read(program) is None:
        check_jaxlib()
        _check(program, name)
    return read_stablehlo(program, name=name)


def _fault_of(request: tuple[bytes, str]) -> XlakitError | None:
    """What the process does: it reads the bytecode, and gives the fault that is found."""
    program, name = request
    try:
        read_stablehlo(program, name=name)
    except XlakitError as error:
        line = 1 if error.location is None or error.location.file != name else error.location.line
        kind = UnsupportedError if isinstance(error, UnsupportedError) else FormatError
        return kind(error.rule, hint=error.hint, location=Location(name, line))
    return None


def _check(program: bytes, name: str) -> None:
    child, limits = Child(__name__), Limits(_SECONDS, memory_limit())
    try:
        fault = child.ask((program, name), limits)
    except Unanswered as error:
        how = {
            "timed out": f"does not read it in {_SECONDS:.0f} s",
            "out of memory": f"takes {error.memory:,} bytes of memory for it, the limit is {limits.memory:,} "
            "(XLAKIT_MEMORY_LIMIT)",
        }
        problem = how.get(error.why) or f"{child.ending()} on it"
        raise FormatError(f"damaged bytecode: MLIR {problem}", location=Location(name, 1), hint=_HINT) from None
    finally:
        child.end()
    if fault is not None:
        raise fault


if __name__ == "__main__":
    serve(_fault_of)
