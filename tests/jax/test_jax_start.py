"""What JAX's start on xlakit loads, and its first program."""

import os
from pathlib import Path

_ROOT = Path(__file__).parents[2]
# What compiles programs: a process whose programs are all in the compile cache does without.
_COMPILER = ("xlakit.face", "xlakit.ops", "xlakit.passes", "xlakit.formats", "xlakit.verifier", "xlakit.interpreter")
# What writes native code, of programs and of the runtime; LLVM, which takes longer to load than all else, is among it.
_WRITERS = (
    "llvmlite.binding",
    "llvmlite.ir",
    "xlakit.machine_code.elf",
    "xlakit.cpu.llvm.engine",
    "xlakit.cpu.llvm.function",
    "xlakit.cpu.llvm.linking",
    "xlakit.machine_code.llvm",
    "xlakit.cpu.runtime.text",
    "xlakit.cpu.runtime.pool",
    "xlakit.jax.native.text",
)
# What few programs need.
_SELDOM = (
    "llvmlite.binding",
    "xlakit.face",
    "xlakit.formats.hlo_text",
    "xlakit.passes.spmd.shardings",
    "xlakit.passes.spmd.splitting",
    # Passes, functions and kernels of operations that it does not have.
    "xlakit.passes.loops.invariants",
    "xlakit.passes.batches.plans",
    "xlakit.passes.fusion.epilogues",
    "xlakit.passes.scheduling.combine_collectives",
    "xlakit.cpu.math.exponential",
    "xlakit.cpu.scalars.complex",
    "xlakit.cpu.loops.nests.rows",
    "xlakit.cpu.profiling.recorder",
    "xlakit.cpu.kernels.fft.fft",
    "google.protobuf",
    "xlakit.builder",
    "xlakit.cpu.c_layouts",
    "xlakit.interpreter.evaluate",
    "xlakit.execution.calls.ffi.target",
    "xlakit.execution.calls.foreign.meaning",
)
_PLATFORMS = ({"JAX_PLATFORMS": "xlakit", "XLAKIT_AS": ""}, {"JAX_PLATFORMS": "cpu", "XLAKIT_AS": "cpu"})


def _run(forks, program, **environment):
    code = f"import jax, sys; from xlakit.jax import initialize; initialize(); {program}"
    environment = {**os.environ, **environment, "PYTHONPATH": str(_ROOT)}
    done = forks.run(code, environment=environment)
    assert not done.returncode, done.stderr


def test_devices_come_without_the_compiler(forks):
    _run(
        forks,
        f"jax.devices(); found = [m for m in sys.modules if m.startswith({_COMPILER})]; assert not found, found",
        **_PLATFORMS[1],
    )


def test_a_program_of_the_compile_cache_comes_without_the_compiler(forks):
    call = "jax.jit(lambda x: x * 3 + 1)(1)"
    _run(forks, call, **_PLATFORMS[0])
    _run(
        forks,
        f"{call}; found = [m for m in sys.modules if m.startswith({_COMPILER + _WRITERS})]; assert not found, found",
        **_PLATFORMS[0],
    )


def test_a_program_is_compiled_without_what_few_programs_need(forks):
    _run(
        forks,
        f"assert jax.jit(lambda x: x + 1)(1) == 2; found = [m for m in {_SELDOM} if m in sys.modules];"
        " assert 'xlakit.passes.pipeline' in sys.modules and not found, found",
        **_PLATFORMS[0],
        XLAKIT_CACHE="off",
    )
