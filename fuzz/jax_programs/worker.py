"""One program after the other on both platforms of this process: for each a line of JSON."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from fuzz.jax_programs.batches import is_batch, over_batch, sizes, with_knobs
from fuzz.jax_programs.control import arguments, program
from fuzz.jax_programs.layouts import in_layouts
from fuzz.jax_programs.names import name_of


def values(seed: str) -> list[Any]:
    """The arguments of a program: small whole numbers."""
    random_numbers = np.random.default_rng(random.Random(f"{seed} values").getrandbits(32))
    found: list[Any] = []
    for kind, shape in arguments(seed):
        numbers = random_numbers.integers(-4, 5, sizes(seed, shape) if is_batch(seed) else shape)
        numbers = np.abs(numbers) if kind.startswith("uint") else numbers
        found.append(numbers.astype(jax.numpy.dtype(kind)))
    return found


def _begin_on(platform: str) -> None:
    """Say on whose platform the process is, in case it dies there."""
    print(json.dumps({"on": platform}), flush=True)


def _run(seed: str, platform: str, given: list[Any]) -> tuple[list[np.ndarray[Any, Any]], float]:
    _begin_on(platform)
    begin = time.perf_counter()
    function = over_batch(seed) if is_batch(seed) else program(seed)
    with jax.default_device(jax.devices(platform)[0]), with_knobs(seed):
        # Each platform traces anew: nothing of the one is found by the other.
        results = jax.jit(function)(*given)
        return [np.asarray(r) for r in results], time.perf_counter() - begin


def _is_of_single_operations(seed: str, given: list[Any], ways: list[list[np.ndarray[Any, Any]]]) -> bool:
    """Whether results are those of jaxlib's CPU where it compiles each operation by itself.

    It compiles some programs wrongly: a scatter of rows of its own operand overwrites rows that it has yet to read.
    """
    _begin_on("cpu")
    function = over_batch(seed) if is_batch(seed) else program(seed)
    try:
        with jax.default_device(jax.devices("cpu")[0]), with_knobs(seed), jax.disable_jit():
            expected = [np.asarray(result) for result in function(*map(jax.numpy.asarray, given))]
    except Exception:  # JAX does not run every program so, such as loops of no iteration: that says nothing
        return False
    return all(len(way) == len(expected) and all(map(_same, way, expected)) for way in ways)


def judge(seed: str) -> dict[str, Any]:
    """What became of a program: its times, and what is wrong."""
    if seed.startswith("sharded"):
        return judge_sharded(seed)
    given = values(seed)
    try:
        expected, of_cpu = _run(seed, "cpu", given)
    except Exception as error:  # a program that JAX itself refuses says nothing
        return {"seed": seed, "refused": f"{type(error).__name__}: {error}".split("\n", 1)[0][:200]}
    _begin_on("xlakit")
    try:
        begin = time.perf_counter()
        ways = in_layouts(seed, given) if seed.startswith("layouts") else [_run(seed, "xlakit", given)[0]]
        own = time.perf_counter() - begin
    except Exception as error:  # any other exception is a finding
        return {"seed": seed, "fault": f"{type(error).__name__}: {error}"[:600]}
    report: dict[str, Any] = {"seed": seed, "seconds": [round(own, 3), round(of_cpu, 3)]}
    both = [(n, a, b) for actual in ways for n, (a, b) in enumerate(zip(actual, expected, strict=True))]
    for number, a, b in both:
        if a.shape != b.shape or a.dtype != b.dtype or not _same(a, b):
            kind = "jaxlib" if _is_of_single_operations(seed, given, ways) else "fault"
            report[kind] = f"result {number}, {b.dtype}{list(b.shape)}: {_differing(a, b)}"
            break
    return report


def judge_sharded(seed: str) -> dict[str, Any]:
    """The same of a program over several devices, whose results must also be split alike."""
    from fuzz.jax_programs.sharded import difference, mesh_of, result

    _begin_on("cpu")
    try:
        expected = result(seed, mesh_of("cpu"))
    except Exception as error:  # a program that JAX itself refuses says nothing
        return {"seed": seed, "refused": f"{type(error).__name__}: {error}".split("\n", 1)[0][:200]}
    _begin_on("xlakit")
    try:
        actual = result(seed, mesh_of("xlakit"))
    except Exception as error:  # any other exception is a finding
        return {"seed": seed, "fault": f"{type(error).__name__}: {error}"[:600]}
    faults = [
        f"result {n}: {found}"
        for n, both in enumerate(zip(actual, expected, strict=True))
        if (found := difference(*both))
    ]
    return {"seed": seed, "fault": faults[0]} if faults else {"seed": seed}


def _same(a: Any, b: Any) -> bool:
    if a.dtype.kind == "V" or a.dtype.name in ("bfloat16", "float16"):
        a, b = a.astype(np.float32), b.astype(np.float32)
    return bool(np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"))


def _differing(actual: Any, expected: Any) -> str:
    """Elements from the first that differs on, of both arrays."""
    first = 0
    if actual.shape == expected.shape:
        differs = [n for n, both in enumerate(zip(actual.ravel(), expected.ravel(), strict=True)) if not _same(*both)]
        first = differs[0] if differs else 0
    own, other = (" ".join(str(array.ravel()[first : first + 12]).split()) for array in (actual, expected))
    return f"from element {first} on {own} instead of {other}"


def main(arguments: Sequence[str]) -> None:
    """Programs by what they are made from: prefixes of their names, the first number, how many."""
    prefix, (first, count) = arguments[0], map(int, arguments[1:])
    # A fork of a process that has read the environment before.
    jax.config.update("jax_platforms", os.environ["JAX_PLATFORMS"])
    for platform in ("cpu", "xlakit"):
        # Without one of them every program would seem to be refused by JAX.
        jax.devices(platform)
    for number in range(first, first + count):
        print(json.dumps({"begin": number}), flush=True)
        print(json.dumps(judge(name_of(prefix, number))), flush=True)
        if number % 25 == 24:
            jax.clear_caches()


if __name__ == "__main__":
    main(sys.argv[1:])
