"""The laws that traits promise, tried with the interpreter on every pair and triple of small sets of values."""

import dataclasses
import itertools

import numpy as np
import pytest

import xlakit as xla
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ir.traits import TRAITS, Associative, Commutative, Done, Elementwise, Idempotent, Start, traits_of
from xlakit.ops.communication.async_pairs import DONES, WHOLES
from xlakit.ops.data import Parameter
from xlakit.ops.registry import OPERATIONS

_VALUES = {
    xla.PrimitiveType.PRED: [False, True],
    xla.PrimitiveType.S8: [-128, -127, -3, -1, 0, 1, 2, 5, 127],
    xla.PrimitiveType.U8: [0, 1, 2, 7, 128, 200, 255],
    xla.PrimitiveType.F32: [-np.inf, -2.0, -0.0, 0.0, 0.5, 1.0, 3.0, np.inf, np.nan],
}
_BINARY = sorted(
    opcode
    for opcode, op in OPERATIONS.items()
    if op.arity == 2 and issubclass(op, Elementwise) and not op.attributes and opcode != "complex"
)


def _function(opcode, kind):
    """The operation on arrays of a type, with results as bytes; None where it does not take the type."""
    shape = xla.Shape(kind, (len(_VALUES[kind]) ** 3,))
    parameters = [Instruction(Parameter(number=n), (), shape, f"p{n}") for n in range(2)]
    op = OPERATIONS[opcode]()
    try:
        result = op.result_shape([shape, shape], None)
    except xla.ShapeError:
        return None
    if result.element_type is not kind:
        return None
    root = Instruction(op, tuple(parameters), result, "root")
    module = xla.HloModule("m", Computation("main", (*parameters, root), root))
    return xla.compile(module, backend="interpreter")


def _triples(kind):
    values = np.array(_VALUES[kind], kind.dtype)
    return [np.ascontiguousarray(x) for x in zip(*itertools.product(values, repeat=3), strict=True)]


def _same(a, b):
    """Bit by bit, except that all NaN are one."""
    if a.dtype.kind == "f" and not np.array_equal(np.isnan(a), np.isnan(b)):
        return False
    keep = ~np.isnan(a) if a.dtype.kind == "f" else np.ones(a.shape, bool)
    return a[keep].tobytes() == b[keep].tobytes()


@pytest.mark.parametrize("opcode", _BINARY)
def test_laws_hold_where_they_are_declared_and_nowhere_else(opcode):
    holds = {Commutative: [], Associative: [], Idempotent: []}
    for kind in _VALUES:
        f = _function(opcode, kind)
        if f is None:
            continue
        x, y, z = (np.array(values, kind.dtype) for values in _triples(kind))
        holds[Commutative].append(_same(f(x, y), f(y, x)))
        holds[Idempotent].append(_same(f(x, x), x))
        if kind is not xla.PrimitiveType.F32 or issubclass(OPERATIONS[opcode], Idempotent):
            holds[Associative].append(_same(f(f(x, y), z), f(x, f(y, z))))
    declared = {trait: issubclass(OPERATIONS[opcode], trait) for trait in holds}
    assert {trait: all(found) and bool(found) for trait, found in holds.items()} == declared


def test_each_trait_is_declared_and_kinds_of_work_exclude_each_other():
    assert len(_BINARY) > 12
    assert {trait for op in OPERATIONS.values() for trait in traits_of(op)} == set(TRAITS)
    for op in OPERATIONS.values():
        # An operation that computes elements does not hand its operand on.
        assert len({"Elementwise", "DataMovement", "Forwarding"} & {t.__name__ for t in traits_of(op)}) <= 1


def test_async_pairs_are_in_one_table():
    assert {op for op in OPERATIONS.values() if issubclass(op, Start)} == set(DONES)
    assert {op for op in OPERATIONS.values() if issubclass(op, Done)} == set(DONES.values())
    assert len(set(DONES.values())) == len(DONES)
    # A start has the attributes of the whole operation, and what is its own.
    for start, whole in WHOLES.items():
        assert {f.name for f in dataclasses.fields(whole)} <= {f.name for f in dataclasses.fields(start)}
