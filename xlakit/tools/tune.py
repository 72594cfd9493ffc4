"""``xlakit tune``: alternatives for the kernels of a program are timed, and the best are kept."""

from __future__ import annotations

from xlakit import compile_cache
from xlakit.cpu.compiler import compile_module
from xlakit.cpu.tuning.record import TuningReport
from xlakit.errors import ArgumentError
from xlakit.execution.options import ExecutionOptions
from xlakit.ir.instruction import HloModule
from xlakit.options import Tune, compiling
from xlakit.tools.shards import on_devices, with_partitions
from xlakit.tools.stand_ins import stand_ins


def tuned(module: HloModule, *, seconds: float, again: bool) -> TuningReport:
    """Tune a program and store the choices, which are used whenever it is compiled; gives a report of the times.

    A program that was tuned before gives the report of that time, unless ``again``. Raises ArgumentError where the
    compile cache is off.
    """
    if not compile_cache.is_enabled():
        raise ArgumentError("the compile cache is off: nothing that is chosen can be kept", hint="unset XLAKIT_CACHE")
    module = on_devices(with_partitions(module)).module
    with compiling(tune=Tune(seconds, again)):
        report = compile_module(module, ExecutionOptions(custom_calls=stand_ins(module))).tuning_report
    return TuningReport() if report is None else report
