"""The pipeline changes no result: of single operations on edge values or on constants, and of whole programs."""

from pathlib import Path

import numpy as np
import pytest
from evaluating import same

import xlakit as xla
from fuzz.jaxlib import fault_of, flat
from fuzz.modules import difference
from fuzz.programs.composed.modules import module as module_of
from fuzz.programs.plan import plan
from xlakit.cpu.execution.dynamic_arrays import DynamicArrays
from xlakit.data.literal import Literal
from xlakit.execution.inputs import make_inputs
from xlakit.ir.instruction import Computation
from xlakit.ops.data import Constant
from xlakit.passes import PassContext
from xlakit.passes.pipeline import run_pipeline
from xlakit.tools.compare import compare, format_table
from xlakit.tools.inputs import flatten

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "hlo").glob("*.hlo"))
SINGLE = plan(500, seed=11)


def improved(module):
    return run_pipeline(module, context=PassContext(check=True))


def run(module, arguments, replicas):
    try:
        executable = xla.compile(module, backend="interpreter", seed=3)
        return [executable(*arguments[0])] if replicas == 1 else executable.execute_replicated(arguments)
    except xla.XlakitError as error:
        return type(error)


def run_improved(module, arguments, replicas):
    """The results of what the pipeline makes of a module; padded and cut where it has dynamic dimensions outside."""
    dynamic = DynamicArrays.of(module)
    if dynamic is None:
        return run(improved(module), arguments, replicas)
    results = run(improved(module), [dynamic.padded([np.asarray(a) for a in given]) for given in arguments], replicas)
    return results if isinstance(results, type) else [dynamic.cut(flat([result]))[0] for result in results]


def same_results(before, after, program):
    if isinstance(before, type):
        assert after is before
        return
    if program.opcode == "dot" or program.opcode.startswith("batch-norm"):
        # They become other operations, which round one by one.
        assert fault_of(program, flat(after), flat(before)) is None
        return
    assert len(before) == len(after)
    for a, b in zip(after, before, strict=True):
        same(a, b)


def with_constants(module, arguments):
    """The module with arguments put in the places of its parameters, and with unused parameters."""

    def change(instruction, operands):
        if instruction.opcode != "parameter":
            return instruction.replace(operands=operands)
        value = arguments[instruction.op.number]
        return instruction.replace(op=Constant(literal=Literal(instruction.shape, np.asarray(value))))

    entry = module.entry.rebuild(change)
    return module.replace(entry=Computation(entry.name, entry.instructions, entry.root), entry_computation_layout=None)


@pytest.mark.parametrize("entry", SINGLE, ids=[f"{e.opcode}-{e.number}" for e in SINGLE])
def test_a_single_operation_keeps_its_result(entry):
    program = entry.make()
    try:
        module = xla.HloModule.from_text(program.text)
    except xla.XlakitError:
        pytest.skip("the program is refused")
    arguments = program.arguments
    replicas = len(arguments)
    before = run(module, arguments, replicas)
    same_results(before, run_improved(module, arguments, replicas), program)
    if replicas == 1 and all(s.is_array for s in module.entry.program_shape.parameters):
        same_results(before, run_improved(with_constants(module, arguments[0]), [()], 1), program)


@pytest.mark.parametrize("number", range(80))
def test_a_module_of_many_operations_keeps_its_results(number):
    """Loops and branches among them."""
    program = module_of(3, number)
    module = xla.HloModule.from_text(program.text)
    after, before = (
        flatten(xla.compile(m, backend="interpreter")(*program.arguments[0])) for m in (improved(module), module)
    )
    assert before.keys() == after.keys()
    assert not [text for name in before if (text := difference(after[name], before[name]))]


@pytest.mark.parametrize("path", EXAMPLES, ids=[p.stem for p in EXAMPLES])
def test_an_example_keeps_its_result(path):
    module = xla.HloModule.from_text(path.read_text(encoding="utf-8"), name=path.name)
    arguments = make_inputs(module.entry.program_shape, seed=2)
    after = improved(module)
    assert after is not module
    leaves = compare(*(xla.compile(m, backend="interpreter", seed=3)(*arguments) for m in (after, module)))
    assert all(leaf.agrees for leaf in leaves), format_table(leaves)
