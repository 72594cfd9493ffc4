"""``xlakit inspect`` and ``xlakit cache``: the output of the compiler's stages, and the compile cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from xlakit import compile_cache as cache
from xlakit.cpu.compiler import generate_module
from xlakit.cpu.execution.generated import GeneratedProgram
from xlakit.errors import ArgumentError
from xlakit.execution.options import ExecutionOptions
from xlakit.ir.instruction import HloModule
from xlakit.passes.analysis.traffic import as_text, traffic
from xlakit.passes.scheduling.overlap_collectives import overlaps_of
from xlakit.tools.elided import elided_constants
from xlakit.tools.shards import on_devices, with_partitions
from xlakit.tools.stand_ins import stand_ins


def inspect(module: HloModule, view: str, text: Mapping[str, bool]) -> str:
    """A program in one of the VIEWS; of a program that is split over several devices, the program of one device.

    text: how HLO is printed, as :meth:`HloModule.to_text` takes it.
    """
    view_text = VIEWS[view](generated(module), **(text if view == "hlo" else {}))
    return view_text.rstrip("\n") + "\n"


def inspect_as_data(module: HloModule, view: str, text: Mapping[str, bool]) -> Any:
    """The same for JSON: of ``cost``, ``memory`` and ``fallbacks`` the values, of the others the text."""
    if view not in _DATA:
        return inspect(module, view, text)
    return _DATA[view](generated(module))


def generated(module: HloModule) -> GeneratedProgram:
    """The program of one device, with stand-ins for custom calls that are not registered, up to its LLVM IR."""
    device_module = on_devices(with_partitions(module)).module
    return generate_module(device_module, ExecutionOptions(custom_calls=stand_ins(device_module)))


def _cost(program: GeneratedProgram) -> str:
    cost = program.cost_analysis()
    width = max(map(len, cost))
    return "\n".join(f"{name:{width}}  {value:>20,.0f}" for name, value in cost.items())


def _hlo(program: GeneratedProgram, **text: bool) -> str:
    """The program's text, after a comment for all that is not machine code."""
    if elided_constants(program.optimized_module()):
        comments = ["// constants are elided, so it is not known what is not machine code\n"]
    else:
        comments = [f"// not machine code: {fallback}\n" for fallback in program.fallbacks]
    return "".join(comments) + program.as_text(**text)


def _memory(program: GeneratedProgram) -> str:
    """The sizes, and the arena over the schedule, which has the values at the peak."""
    sizes = str(replace(program.memory_analysis(), holders=()))
    return "\n\n".join(part for part in (sizes, str(program.memory_timeline())) if part)


def _memory_as_data(program: GeneratedProgram) -> dict[str, Any]:
    """The sizes, and the arena over the schedule."""
    sizes = asdict(replace(program.memory_analysis(), holders=()))
    # Removed, as no machine code is made here.
    del sizes["holders"], sizes["generated_code_size_in_bytes"]
    return {**sizes, "timeline": program.memory_timeline().as_dict()}


def _collectives(program: GeneratedProgram) -> str:
    """The collectives, and which of them would overlap with other work if the devices were in several processes."""
    module = program.optimized_module()
    overlaps = overlaps_of(module)
    text = as_text(traffic(module))
    if not overlaps:
        return text
    work, hidden = (sum(times) / 1e6 for times in ((o.work for o in overlaps), (o.hidden for o in overlaps)))
    whole = sum(o.nanoseconds for o in overlaps) / 1e6
    return (
        f"{text}\n\nbetween processes {len(overlaps)} of them go on beside {work:,.1f} ms of other work, "
        f"which hides {hidden:,.1f} of {whole:,.1f} ms (estimates)"
    )


def _fallbacks(program: GeneratedProgram) -> str:
    return "\n".join(map(str, program.fallbacks)) or "all of it is machine code"


# The names are repeated in cli.py, which does not load this file to print its help.
VIEWS: Mapping[str, Callable[..., str]] = {
    "hlo": _hlo,
    "llvm": GeneratedProgram.llvm_ir,
    "llvm-raw": lambda program: program.llvm_ir(optimized=False),
    "assembly": GeneratedProgram.assembly,
    "cost": _cost,
    "memory": _memory,
    "memory-plan": lambda program: program.memory_plan().as_text(),
    "fallbacks": _fallbacks,
    "collectives": _collectives,
}


_DATA: Mapping[str, Callable[[GeneratedProgram], Any]] = {
    "cost": GeneratedProgram.cost_analysis,
    "memory": _memory_as_data,
    "fallbacks": lambda program: [str(fallback) for fallback in program.fallbacks],
}


def cache_summary() -> str:
    """Where the compile cache is, and how full."""
    used = cache.usage()
    if used is None:
        return "the compile cache has no directory: neither XLAKIT_CACHE_DIR nor a home directory is set"
    state = "" if cache.is_enabled() else " (switched off by XLAKIT_CACHE)"
    return f"{used.directory}{state}\n{used.entries} entries, {used.bytes:,} of {used.limit:,} bytes"


def cache_directory() -> str:
    """The directory of the compile cache. Raises ArgumentError if there is none."""
    folder = cache.directory()
    if folder is None:
        raise ArgumentError("the compile cache has no directory", hint="set XLAKIT_CACHE_DIR")
    return str(folder)


def cache_state() -> dict[str, Any]:
    """Where the compile cache is, and how full, for JSON; nulls where it has no directory."""
    used = cache.usage()
    numbers = {"directory": None, "entries": None, "bytes": None, "limit": None}
    if used is not None:
        numbers = {
            "directory": str(used.directory),
            "entries": used.entries,
            "bytes": used.bytes,
            "limit": used.limit,
        }
    return {"enabled": cache.is_enabled(), **numbers}


def clear_cache() -> int:
    """Remove all entries of the compile cache; gives their number."""
    return cache.clear()
