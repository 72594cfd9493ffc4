"""A process of :mod:`fuzz.cached`: it compiles programs as tuned, or runs those that another process has compiled.

``python -m fuzz.support.workers.cached_worker first|again FOLDER SEED NUMBER...`` prints what is wrong, a line each.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fuzz.forced import draw
from fuzz.jax_programs.control import arguments
from fuzz.jax_programs.kernels import kernels
from fuzz.jax_programs.worker import values
from xlakit import compile as compile_program, compile_cache
from xlakit.cpu.tuning import tune
from xlakit.cpu.tuning.record import VECTOR_BYTES, Choice, Tuning
from xlakit.formats.hlo_proto import read_module
from xlakit.options import compiling
from xlakit.tools.inputs import flatten

_Results = list[np.ndarray[Any, Any]]
# Each batch has some of each: this is where processes differ.
_WIDTHS: tuple[Choice, ...] = ({VECTOR_BYTES: 16}, {}, {VECTOR_BYTES: 32})
# What a program that is found in the compile cache adds no entry of.
_MADE_BY_COMPILING = ("program-", "tuning-", "source-")


class Case:
    """A program by its seed and number: run through JAX, or as the module that JAX makes of it."""

    def __init__(self, folder: Path, seed: str, number: int) -> None:
        self.seed, self.number = seed, number
        self._name = f"{seed}.{number}"
        self._file = folder / f"{number}.npz"
        self._proto = folder / f"{number}.pb"

    def through_jax(self) -> _Results:
        """What JAX gives."""
        return [np.asarray(r) for r in self._jitted()(*values(self._name))]

    def _jitted(self) -> Any:
        # The module has all parameters that the program has.
        return jax.jit(kernels(self._name), keep_unused=True)

    def as_module(self) -> _Results:
        """What the module gives, compiled with the options in force."""
        compiled = compile_program(read_module(self._proto.read_bytes()), backend="cpu")
        return [np.asarray(r) for r in flatten(compiled(*values(self._name))).values()]

    def with_other_options(self) -> _Results:
        """What the module gives, compiled with options that are drawn at random."""
        with compiling(draw(int(self.seed), -1 - self.number)):
            return self.as_module()

    def choice(self) -> Choice:
        """What tuning is taken to have found the fastest."""
        return {**draw(int(self.seed), self.number).knobs, **_WIDTHS[self.number % len(_WIDTHS)]}

    def _keep(self, results: _Results) -> None:
        """Write down the module, and results for the other process."""
        given = [jax.ShapeDtypeStruct(shape, jax.numpy.dtype(kind)) for kind, shape in arguments(self._name)]
        lowered: Any = self._jitted().lower(*given)
        self._proto.write_bytes(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())
        np.savez(self._file, *map(_bits, results))

    def difference(self, actual: _Results) -> str:
        """How results differ in their bits from the first ones, which are written down; empty where they do not."""
        if not self._file.exists():
            self._keep(actual)
            return ""
        with np.load(self._file) as kept:
            expected = [kept[name] for name in kept.files]
        for number, (a, b) in enumerate(zip(map(_bits, actual), expected, strict=True)):
            if a.shape != b.shape or not np.array_equal(a, b):
                return (
                    f"result {number} of {len(expected)} has other bits: {a.ravel()[:12]} instead of {b.ravel()[:12]}"
                )
        return ""


def _bits(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    # The sign of a zero depends on the order in which a sum is added.
    unsigned = np.where(array == 0, np.zeros((), array.dtype), array)
    return np.frombuffer(np.ascontiguousarray(unsigned).tobytes(), np.uint8)


def run(cases: Sequence[Case], role: str, drawn: random.Random) -> Iterator[str]:
    """Run the programs, as tuned first, then again in any order; gives what is wrong.

    Both roles call JAX from the same lines: JAX's bytes tell of them.
    """
    ways = [(case, way) for case in cases for way in _WAYS if role == "again" or way != _OTHERS]
    if role == "again":
        drawn.shuffle(ways)
    for case, way in ways:
        if role == "first":
            # In place of measurements, which would choose the same on every day.
            tune.tune = _choosing(case.choice())
        before = _entries()
        try:
            fault = case.difference(_WAYS[way](case))
        except Exception as error:  # any exception is a finding
            fault = f"{type(error).__name__}: {error}"
        if role == "again" and way != _OTHERS and not fault and (added := _entries() - before):
            fault = f"it was kept, and is compiled again: {sorted(added)}"
        if fault:
            yield f"program {case.number}, {way}: {fault}"


def _choosing(choice: Choice) -> Callable[..., Tuning]:
    return lambda *given, **named: Tuning(choice)


_OTHERS = "with other options"
_WAYS: Mapping[str, Callable[[Case], _Results]] = {
    "through JAX": Case.through_jax,
    "as a module": Case.as_module,
    _OTHERS: Case.with_other_options,
}


def _entries() -> set[str]:
    folder = compile_cache.directory()
    found = folder.iterdir() if folder is not None and folder.is_dir() else ()
    return {path.name for path in found if path.name.startswith(_MADE_BY_COMPILING)}


def main() -> None:
    """The process."""
    role, folder, seed, *numbers = sys.argv[1:]
    cases = [Case(Path(folder), seed, int(number)) for number in numbers]
    for fault in run(cases, role, random.Random(f"{seed} {role}")):
        print(" ".join(fault.split()), flush=True)


if __name__ == "__main__":
    main()
