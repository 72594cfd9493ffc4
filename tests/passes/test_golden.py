"""Golden programs: what each pass makes of them, and that they give the same results as before.

``golden/<pass>/<case>.hlo`` holds a program and, after a line of its own, what the pass makes of it. After a change
that is meant, ``pytest tests/passes --update-golden`` writes the second halves again; read the difference.
"""

from pathlib import Path

import numpy as np
import pytest
from evaluating import same

import xlakit as xla
from fuzz.programs.values import EDGES, SMALL, make_values
from xlakit.data.shape import make_tuple_shape
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ir.traits import Start
from xlakit.ops.registry import OPERATIONS
from xlakit.options import compiling
from xlakit.passes import PassContext
from xlakit.passes.core.deferred import Deferred
from xlakit.passes.core.framework import with_callees, with_computations
from xlakit.passes.pipeline import PASSES, PIPELINE, TABLES, run_pipeline

GOLDEN = Path(__file__).parent / "golden"
CASES = sorted(GOLDEN.glob("*/*.hlo"))
AFTER = "\n// after\n"
# The program of one partition takes parts of the arguments: tests/passes/spmd compares what it gives.
ON_THE_SAME = [path for path in CASES if path.parent.name != "partition"]
# Passes that act on large programs alone, and what makes them act on small ones.
KNOBS = {"collective-matmul": {"collective_matmul.when": 2}}
# Some passes act where a machine gains by it.
pytestmark = pytest.mark.usefixtures("usual_machine")


def name_of(path):
    return f"{path.parent.name}/{path.stem}"


def before(path):
    text = path.read_text(encoding="utf-8").partition(AFTER)[0]
    return xla.HloModule.from_text(text, name=str(path))


def improved(path, module=None):
    context = PassContext(check=True)
    with compiling(vector_bytes=32, knobs=KNOBS.get(path.parent.name, {})):
        return run_pipeline(module or before(path), [path.parent.name], context=context), context


@pytest.mark.parametrize("path", CASES, ids=name_of)
def test_a_pass_makes_of_a_program_what_the_file_says(path, request):
    after = improved(path)[0].to_text()
    source, _, expected = path.read_text(encoding="utf-8").partition(AFTER)
    if request.config.getoption("--update-golden"):
        path.write_text(source.rstrip() + "\n" + AFTER + after, encoding="utf-8")
        return
    assert after == expected


def test_a_pass_that_is_not_loaded_for_a_program_would_not_change_it():
    for path in CASES:
        module = before(path)
        for step in {step.name: step for step in PASSES.values() if isinstance(step, Deferred)}.values():
            condition = step._condition
            if condition is not None and not condition(module):
                context = PassContext()
                context.begin(step.name)
                assert step.loaded.run(module, context) is module, f"{step.name} changes {path}"


def arguments(shape, rng, style):
    if shape.is_tuple:
        return tuple(arguments(s, rng, style) for s in shape.tuple_shapes)
    return make_values(rng, shape.element_type.hlo_name, shape.dimensions, style)


def interpreted(module):
    executable = xla.compile(module, backend="interpreter", seed=5)

    def run(values):
        result = executable(*values)
        # Several devices give a list.
        return tuple(result) if isinstance(result, list) else result

    return run


def agree(path, after, before):
    """Whether results are the same; what is computed by another formula may be rounded otherwise."""
    if path.parent.name == "special-functions":
        np.testing.assert_allclose(after, before, rtol=1e-6)
    else:
        same(after, before)


@pytest.mark.parametrize("style", [EDGES, SMALL])
@pytest.mark.parametrize("path", ON_THE_SAME, ids=name_of)
def test_a_golden_program_keeps_its_results(path, style):
    module = before(path)
    given, made = interpreted(module), interpreted(improved(path)[0])
    rng = np.random.default_rng(7)
    # Of arrays with many elements one draw has every edge.
    is_large = any(s.is_array and s.num_elements > 10_000 for s in module.entry.program_shape.parameters)
    for _ in range(1 if is_large else 5):
        values = [arguments(s, rng, style) for s in module.entry.program_shape.parameters]
        agree(path, made(values), given(values))


def with_dead_readers(module):
    """The module with, behind each instruction, another that reads it and that nothing needs."""
    made = {}
    # The computation of an async-start has one instruction besides its parameters.
    wrapped = {
        c
        for m in module.computations
        for i in m.instructions
        if i.opcode == "async-start"
        for c in i.op.called_computations
    }
    for old in module.computations:
        if old in wrapped:
            made[old] = with_callees(old, made)
            continue
        lines = []
        for line in with_callees(old, made).instructions:
            lines.append(line)
            # What starts an operation has one user, which ends it.
            if not isinstance(line.op, Start):
                shape = make_tuple_shape([line.shape])
                lines.append(Instruction(OPERATIONS["tuple"](), [line], shape, f"dead.{line.name}"))
        root = next(line for line in lines if line.name == old.root.name)
        made[old] = Computation(old.name, tuple(lines), root, old.execution_thread)
    return with_computations(module, list(made.values()))


@pytest.mark.parametrize("path", CASES, ids=name_of)
def test_a_pass_takes_programs_with_instructions_that_nothing_needs(path):
    module = with_dead_readers(before(path))
    after, _ = improved(path, module)
    if path not in ON_THE_SAME:
        return
    rng = np.random.default_rng(9)
    values = [arguments(s, rng, EDGES) for s in module.entry.program_shape.parameters]
    agree(path, interpreted(after)(values), interpreted(before(path))(values))


FLOAT_TYPES = (
    "f64",
    "bf16",
    "f16",
    "f8e5m2",
    "f8e4m3fn",
    "f8e4m3b11fnuz",
    "f8e5m2fnuz",
    "f8e3m4",
    "f8e8m0fnu",
    "f4e2m1fn",
)
INTEGER_TYPES = (("s8", "u8"), ("s16", "u16"), ("s64", "u64"), ("s4", "u4"))


@pytest.mark.parametrize("kind", [*FLOAT_TYPES, *INTEGER_TYPES], ids=str)
def test_arithmetic_laws_hold_in_every_type(kind):
    if isinstance(kind, str):
        text = (GOLDEN / "arithmetic" / "floats.hlo").read_text(encoding="utf-8").replace("f32", kind)
    else:
        text = (GOLDEN / "arithmetic" / "integers.hlo").read_text(encoding="utf-8")
        text = text.replace("s32", kind[0]).replace("u32", kind[1]).replace("constant(8)", "constant(4)")
    try:
        module = xla.HloModule.from_text(text.partition(AFTER)[0])
    except xla.XlakitError:
        pytest.skip("the type does not hold the constants")
    context = PassContext(check=True)
    after = run_pipeline(module, ["arithmetic"], context=context)
    assert context.rewrites > 3
    rng = np.random.default_rng(8)
    for style in (EDGES, SMALL):
        values = [arguments(s, rng, style) for s in module.entry.program_shape.parameters]
        same(interpreted(after)(values), interpreted(module)(values))


def test_every_rule_has_a_golden_program():
    used = set()
    for path in CASES:
        for _, counts in improved(path)[1].statistics:
            used |= set(counts)
    assert {rule.name for table in TABLES for rule in table.rules} <= used


def test_every_pass_has_a_golden_program():
    assert {path.parent.name for path in CASES} == {*PASSES, *(step.name for step in PIPELINE)}
