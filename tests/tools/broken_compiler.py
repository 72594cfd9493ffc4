"""A compiler with seeded faults, for ``xlakit bisect --load``; FAULT in the environment names the fault."""

import os

import numpy as np

import xlakit as xla
from xlakit.options import is_plain
from xlakit.passes.core.rules import Rule
from xlakit.passes.pipeline import PASSES, run_pipeline

FAULT = os.environ["FAULT"]


def _subtract_self(instruction, rewriter):
    """x * x -> x (wrong)."""
    left, right = instruction.operands
    return left if left is right else None


if FAULT == "rule":
    table = PASSES["simplify"].rules.rules
    table[:] = [r for r in table if r.name != "square-is-self"]
    table.insert(0, Rule("square-is-self", "broken", ("multiply",), _subtract_self))


def wrong(value):
    if isinstance(value, tuple):
        return (wrong(value[0]), *value[1:])
    return (np.asarray(value) + 1).astype(value.dtype)


def make(module, **_):
    """Passes, then the interpreter in place of code generation, which has a fault."""
    run = xla.compile(module, backend="interpreter")
    if FAULT == "part":
        is_wrong = not is_plain("memory")
    elif FAULT == "always":
        is_wrong = True
    else:
        optimized = run_pipeline(module)
        opcodes = [i.opcode for c in optimized.computations for i in c.instructions]
        is_wrong = "fusion" in opcodes and "tanh" in opcodes
    return lambda *arguments: wrong(run(*arguments)) if is_wrong else run(*arguments)


xla.register_backend("broken", make)
