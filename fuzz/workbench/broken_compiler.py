"""A compiler with seeded faults, for ``xlakit bisect --load``; FAULT in the environment names the fault."""

import os

import numpy as np

import xlakit as xla
from xlakit.cpu.compiler import prepared
from xlakit.memory.copy_insertion import CopyInsertion
from xlakit.options import is_plain
from xlakit.passes import pipeline
from xlakit.passes.core.computation_builder import ComputationCloner
from xlakit.passes.core.framework import ComputationPass
from xlakit.passes.core.rules import Rule
from xlakit.passes.pipeline import PASSES, run_pipeline

FAULT = os.environ["FAULT"]


def _square(instruction, rewriter):
    """x * x -> x (wrong)."""
    left, right = instruction.operands
    return left if left is right else None


def _difference(instruction, rewriter):
    """x - y -> x + y (wrong)."""
    return rewriter.apply("add", *instruction.operands)


def _quotient(instruction, rewriter):
    """x / y -> x * y (wrong)."""
    return rewriter.apply("multiply", *instruction.operands)


def _maximum(instruction, rewriter):
    """max(x, y) -> x (wrong)."""
    return instruction.operands[0]


# By fault: the rule, the operation that it is for, and what it does.
RULES = {
    "rule": ("square-is-self", "multiply", _square),
    "difference": ("subtract-is-add", "subtract", _difference),
    "quotient": ("divide-is-multiply", "divide", _quotient),
    "maximum": ("maximum-is-first", "maximum", _maximum),
}
# By fault: the operation that a pass leaves out where it changes no shape.
FORGOTTEN = {"negations": "negate", "transposes": "transpose", "bits": "xor", "tangents": "tanh"}


class Forget(ComputationPass):
    """Leave out an operation (wrong)."""

    def __init__(self, opcode):
        self.name = f"forget-{opcode}"
        self.opcode = opcode

    def change(self, computation, context):
        cloner = ComputationCloner(computation, context)
        for i in computation.instructions:
            is_one = i.opcode == self.opcode and i.operands[0].shape == i.shape
            if is_one and context.spend(self.name):
                cloner.substitute(i, cloner.clones[i.operands[0]])
            else:
                cloner.clone(i)
        return cloner.build()


if FAULT in RULES:
    name, opcode, rewrite = RULES[FAULT]
    table = PASSES["simplify"].rules.rules
    table[:] = [r for r in table if r.name != name]
    table.insert(0, Rule(name, "broken", (opcode,), rewrite))
if FAULT in FORGOTTEN:
    step = Forget(FORGOTTEN[FAULT])
    PASSES[step.name] = step
    # After calls are inlined, before what is left of dead code is dropped.
    passes = [p for p in pipeline.PIPELINE if p.name != step.name]
    pipeline.PIPELINE = (*passes[:6], step, *passes[6:])
if FAULT == "copies":
    # The last copy before a loop or an update is left out.
    inserted = CopyInsertion._copies
    CopyInsertion._copies = lambda self, pairs: inserted(self, pairs)[:-1]


def wrong(value):
    if isinstance(value, tuple):
        return (wrong(value[0]), *value[1:])
    return (np.asarray(value) + 1).astype(value.dtype)


def make(module, **_):
    """Passes, then the interpreter in place of code generation, which may have a fault."""
    if FAULT == "copies":
        return xla.compile(module, backend="cpu")
    if FAULT in RULES or FAULT in FORGOTTEN:
        # As the CPU backend prepares it, whose rewrites bisect numbers.
        return xla.compile(run_pipeline(prepared(module)), backend="interpreter")
    run = xla.compile(module, backend="interpreter")
    if FAULT == "part":
        is_wrong = not is_plain("memory")
    elif FAULT == "always":
        is_wrong = True
    else:
        optimized = run_pipeline(prepared(module))
        opcodes = [i.opcode for c in optimized.computations for i in c.instructions]
        is_wrong = "fusion" in opcodes and "tanh" in opcodes
    return lambda *arguments: wrong(run(*arguments)) if is_wrong else run(*arguments)


xla.register_backend("broken", make)
