"""Bytecode of files, which may be damaged: MLIR reads it in a process of its own first.

On damaged bytecode MLIR does not always fail: it may write outside of its memory, end the process, or not return.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from xlakit.errors import FormatError, Location, UnsupportedError, XlakitError
from xlakit.formats.stablehlo import check_jaxlib, read_stablehlo
from xlakit.formats.stablehlo.modules import try_to_read
from xlakit.ir.instruction import HloModule

_SECONDS: Final = 60.0
_SERVE: Final = "from xlakit.formats.stablehlo.apart import serve; serve()"
_PACKAGES: Final = str(Path(__file__).resolve().parents[3])
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


def serve() -> None:
    """What the process does: reads the bytecode from standard input, and writes the fault as JSON, or null."""
    fault: dict[str, Any] | None = None
    try:
        read_stablehlo(sys.stdin.buffer.read(), name="-")
    except XlakitError as error:
        line = 1 if error.location is None or error.location.file != "-" else error.location.line
        is_unsupported = isinstance(error, UnsupportedError)
        fault = {"rule": error.rule, "hint": error.hint, "line": line, "is_unsupported": is_unsupported}
    print(json.dumps(fault))


def _check(program: bytes, name: str) -> None:
    location = Location(name, 1)
    search_path = os.pathsep.join(filter(None, [_PACKAGES, os.environ.get("PYTHONPATH")]))
    try:
        done = subprocess.run(
            [sys.executable, "-c", _SERVE],
            input=program,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            env={**os.environ, "PYTHONPATH": search_path},
        )
    except subprocess.TimeoutExpired:
        raise FormatError(
            f"damaged bytecode: MLIR does not read it in {_SECONDS:.0f} s", location=location, hint=_HINT
        ) from None
    if done.returncode:
        status = f"status {done.returncode}"
        how = signal.Signals(-done.returncode).name if done.returncode < 0 else status
        raise FormatError(f"damaged bytecode: MLIR ends with {how} on it", location=location, hint=_HINT)
    fault = json.loads(done.stdout.splitlines()[-1])
    if fault is not None:
        kind = UnsupportedError if fault["is_unsupported"] else FormatError
        raise kind(fault["rule"], location=Location(name, fault["line"]), hint=fault["hint"])
