"""Finds the first instruction for which two ways of running a program (two sides) compute different values.

Every instruction of the entry is made a result, and both sides run the program. If the first differing instruction
calls a computation, the search continues there: in a call, a fusion or a branch, with the operands of the expected
side; in a loop iteration by iteration, each from the state of the expected side.

The devices of a program run together, and each device's values are compared with those of the same device. If devices
take different branches, or end a loop in different iterations, all devices run each of the computations, with their own
operands, and only those that would have run it are compared.

The compiler may fuse a program differently if its inner values are results. If the results differ although no
instruction does, this is reported, so that the fault is not lost.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.errors import Location
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ir.operation import TOKEN, Array
from xlakit.ir.traits import Start
from xlakit.ops.communication.asynchronous import AsyncUpdate
from xlakit.ops.control import Call, Conditional, Fusion, While
from xlakit.ops.convolution import Convolution
from xlakit.ops.data import Constant, GetTupleElement, Parameter, Tuple, literal_value
from xlakit.ops.dot import Dot
from xlakit.ops.elementwise.binary import Add, Subtract
from xlakit.ops.shared.calling import Calling
from xlakit.ops.shared.numerics import to_widest
from xlakit.tools.compare import LeafComparison, compare, differing, tolerance_of
from xlakit.tools.diff.matching import matched
from xlakit.tools.numerics.errors import difference
from xlakit.tools.numerics.sides import Side, each_alone, only_defined, steps_of, with_results
from xlakit.tools.numerics.trace import leaves_of

_MOST_LOOP_ITERATIONS = 10_000
# Instructions that differ are tried together, each by itself in one program: the first, then so many times as many.
_MORE_TOGETHER = 8
_MOST_TOGETHER = 512
# Of the text of an instruction, in a report.
_LONGEST_TEXT = 300
# Is told where a search is.
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first instruction whose values differ.

    path: the calls and iterations that it is in, outermost first, as text. device: the first device where they differ.
    comparison: how far its values are apart.
    element: the index of the first element that differs, with its two values, ``actual`` and ``expected``. index: of
    the array in a result that is a tuple. operands: the operands' elements there, on the side that is compared with,
    where they have the result's dimensions or are scalars. note: what limits the finding.
    """

    instruction: Instruction
    path: tuple[str, ...]
    device: int
    comparison: LeafComparison
    index: tuple[int, ...]
    element: tuple[int, ...]
    actual: str
    expected: str
    operands: tuple[tuple[str, str], ...]
    location: Location | None
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "instruction": self.instruction.name,
            "text": str(self.instruction).strip(),
            "path": list(self.path),
            "device": self.device,
            "index": list(self.index),
            "element": list(self.element),
            "actual": self.actual,
            "expected": self.expected,
            "operands": dict(self.operands),
            "max_absolute_error": _number(self.comparison.max_absolute),
            "max_relative_error": _number(self.comparison.max_relative),
            "mismatches": self.comparison.mismatches,
            "count": self.comparison.count,
            "location": None if self.location is None else str(self.location),
            "note": self.note,
        }

    def as_json(self) -> str:
        """As a JSON object."""
        return json.dumps(self.as_dict(), indent=1)

    def __str__(self) -> str:
        """The instruction, where it is, and its values."""
        where = "".join(f", {part}" for part in self.path) + (f", on device {self.device}" if self.device else "")
        line = f" at {self.location}" if self.location is not None else ""
        index = "".join(f"{{{i}}}" for i in self.index)
        element = f"element [{','.join(map(str, self.element))}]" if self.element else "the value"
        leaf = self.comparison
        lines = [
            f"first difference: %{self.instruction.name}{index}{where}{line}",
            f"  {_shortened(repr(self.instruction)[1:-1].strip())}",
            f"  {leaf.mismatches} of {leaf.count} elements differ, by up to {leaf.max_relative:.3g} relative",
            f"  {element} is {self.actual}, expected {self.expected}",
        ]
        if self.operands:
            lines.append("  of " + ", ".join(f"%{name} = {value}" for name, value in self.operands))
        return "\n".join([*lines, *([f"  {self.note}"] if self.note else [])])


def _shortened(text: str) -> str:
    """An instruction on a line or two; tuples of large programs have thousands of operands."""
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT * 2 // 3]} ... {text[-_LONGEST_TEXT // 3 :]}"


def _number(value: float) -> float | str:
    return value if np.isfinite(value) else str(value)


def first_divergence(
    actual: Side,
    expected: Side,
    arguments: Sequence[Sequence[Any]],
    expected_arguments: Sequence[Sequence[Any]] | None = None,
    progress: Progress = lambda where: None,
) -> Divergence | None:
    """The first instruction for which two ways to run a program, or two programs, compute different values.

    actual, expected: programs for as many devices. They may be two: then instructions of the same shape are compared
    that correspond to each other (:func:`xlakit.diff_modules`).
    arguments: for each device one for each parameter; expected_arguments: those of the expected program, where they are
    not the same. Values agree where :func:`compare` says so: integers and PRED equal, floating point numbers within the
    tolerance of their type; and sums, products and calls within that tolerance of their largest operands, of which
    little may be left.
    progress: is told where the search is.

    Gives None where no instruction and no result differs; of two programs, where no result does: instructions that
    correspond to each other need not mean the same.
    """
    same = actual.module is expected.module
    search = _Search(actual, expected, progress)
    actual_arguments = [list(a) for a in arguments]
    other_arguments = actual_arguments if expected_arguments is None else [list(a) for a in expected_arguments]
    got, expected_results = (
        actual.prepare(actual.module)(actual_arguments),
        expected.prepare(expected.module)(other_arguments),
    )
    devices = range(len(actual_arguments))
    agree = _agree(got, expected_results, devices)
    if agree and not same:
        return None
    entries = (actual.module.entry, expected.module.entry)
    divergence = search.within(entries, actual_arguments, (), devices, other_arguments)
    if divergence is not None or agree:
        return divergence
    note = (
        "no instruction differs when all of them are results: the fault is in what is made of several together; "
        "see xlakit bisect"
        if same
        else "no corresponding instruction differs before it"
    )
    return search.report(actual.module.entry.root, (), got, expected_results, None, devices, note)


# A computation of each side.
_Pair = tuple[Computation, Computation]
# A value for each device.
_Values = Sequence[Any]


def _agree(got: _Values, expected: _Values, devices: Sequence[int]) -> bool:
    """Whether the values of these devices agree."""
    return all(leaf.agrees for device in devices for leaf in compare(got[device], expected[device]))


@dataclass(frozen=True, slots=True)
class _Differing:
    """An instruction whose values differ in a run of both sides; its partner on the expected side, and the operands of
    that, None where they are not known; values for each device.
    """

    instruction: Instruction
    partner: Instruction
    operands: Sequence[list[Any]]
    ours: _Values
    theirs: _Values

    @property
    def is_known(self) -> bool:
        """Whether the operands are known."""
        return all(operand is not None for of_one in self.operands for operand in of_one)

    @property
    def is_call(self) -> bool:
        """Whether the difference may be in a computation that is followed."""
        ours, theirs = self.instruction.op, self.partner.op
        return type(ours) is type(theirs) and isinstance(ours, (Call, Conditional, Fusion, While))

    @property
    def can_run_alone(self) -> bool:
        """Whether it is run for the operands of the expected side with others; a loop is followed before."""
        return self.is_known and not isinstance(self.instruction.op, While)

    def is_same(self, values: _Values, device: int) -> bool:
        """Whether a value agrees with the expected one, or differs by no more than roundings of its operands."""
        value, theirs = values[device], self.theirs[device]
        return _agree([value], [theirs], [0]) or _is_rounding(self.instruction, self.operands[device], value, theirs)

    def devices_beyond_rounding(self, devices: Sequence[int]) -> list[int]:
        """Of some devices those where the values are not the same."""
        return [device for device in devices if not self.is_same(self.ours, device)]


class _Search:
    """Both ways to run the computations of their modules."""

    def __init__(self, actual: Side, expected: Side, progress: Progress) -> None:
        self._actual = actual
        self._expected = expected
        self._progress = progress

    def within(
        self,
        pair: _Pair,
        arguments: Sequence[list[Any]],
        path: tuple[str, ...],
        devices: Sequence[int],
        expected_arguments: Sequence[list[Any]] | None = None,
    ) -> Divergence | None:
        """The first instruction of a computation that differs on one of some devices, or of what that calls."""
        partners = _partners(pair)
        if not partners:
            return None
        arguments_there = arguments if expected_arguments is None else expected_arguments
        self._progress(", ".join(path) or "the entry computation")
        got = self._actual.ready(with_results(pair[0], [ours for ours, _ in partners]))(arguments)
        wanted = self._expected.ready(with_results(pair[1], [theirs for _, theirs in partners]))(arguments_there)
        differing_ones = self._differing(partners, got, wanted, arguments_there, devices)
        size = 1
        while several := list(islice(differing_ones, size)):
            # Rounding may make every instruction differ, and a program of its own for each would take long.
            alone = self._values_alone([one for one in several if one.can_run_alone])
            for one in several:
                found = self._judged(one, alone.get(one.instruction), path, devices)
                if found is not None:
                    return found
            size = min(size * _MORE_TOGETHER, _MOST_TOGETHER)
        return None

    def _differing(
        self,
        partners: Sequence[tuple[Instruction, Instruction]],
        got: Sequence[Any],
        wanted: Sequence[Any],
        expected_arguments: Sequence[list[Any]],
        devices: Sequence[int],
    ) -> Iterator[_Differing]:
        """The instructions whose values differ in a run, in their order, by more than roundings of their operands."""
        values = [{theirs: v for (_, theirs), v in zip(partners, of_one, strict=True)} for of_one in wanted]
        for number, (instruction, partner) in enumerate(partners):
            theirs = [w[number] for w in wanted]
            ours = only_defined(instruction, [g[number] for g in got], theirs)
            if _agree(ours, theirs, devices):
                continue
            given = zip(values, expected_arguments, strict=True)
            operands = [[_known_value(o, v, a) for o in steps_of(partner)[0].operands] for v, a in given]
            one = _Differing(instruction, partner, operands, ours, theirs)
            if one.is_call or not one.is_known or one.devices_beyond_rounding(devices):
                yield one

    def _values_alone(self, several: Sequence[_Differing]) -> dict[Instruction, _Values]:
        """What each instruction gives on the actual side for its expected operands, on each device."""
        if not several:
            return {}
        arguments = [[v for one in several for v in one.operands[d]] for d in range(len(several[0].operands))]
        results = self._actual.ready(each_alone([one.instruction for one in several]))(arguments)
        return {
            one.instruction: only_defined(one.instruction, [of_one[n] for of_one in results], one.theirs)
            for n, one in enumerate(several)
        }

    def _judged(
        self, one: _Differing, alone: _Values | None, path: tuple[str, ...], devices: Sequence[int]
    ) -> Divergence | None:
        """The difference of an instruction, or of what is in it, unless its value follows from its operands."""
        if not one.is_known:
            return self.report(one.instruction, path, one.ours, one.theirs, None, devices)
        if one.is_call:
            if alone is not None and _agree(alone, one.theirs, devices):
                return None
            inner = self._inside(one.instruction, one.partner, one.operands, path, devices)
            if inner is not None:
                return inner
        here = one.devices_beyond_rounding(devices)
        if here and alone is None and one.is_call:
            # A loop ends where it should, now that each of its iterations agrees.
            alone = self._values_alone([one])[one.instruction]
        if all(alone is not None and one.is_same(alone, device) for device in here):
            return None
        return self.report(one.instruction, path, one.ours, one.theirs, one.operands, here)

    def _inside(
        self,
        ours: Instruction,
        theirs: Instruction,
        operands: Sequence[list[Any]],
        path: tuple[str, ...],
        devices: Sequence[int],
    ) -> Divergence | None:
        """The first difference within what two instructions call, for their operands."""
        op, name = ours.op, ours.name
        if type(op) is not type(theirs.op) or not isinstance(op, (Call, Conditional, Fusion, While)):
            return None
        pairs = list(zip(op.called_computations, theirs.op.called_computations, strict=False))
        if isinstance(op, While):
            body, condition = pairs
            return self._in_loop(body, condition, [given[0] for given in operands], (*path, name), devices)
        within = (*path, f"in %{name}")
        if not isinstance(op, Conditional):
            return self.within(pairs[0], operands, within, devices)
        taken = {device: op.branch_taken(np.asarray(operands[device][0])) for device in devices}
        for number in sorted(set(taken.values())):
            given = [[of_one[1 + number]] for of_one in operands]
            found = self.within(pairs[number], given, within, [d for d in devices if taken[d] == number])
            if found is not None:
                return found
        return None

    def _in_loop(
        self, body: _Pair, condition: _Pair, state: _Values, path: tuple[str, ...], devices: Sequence[int]
    ) -> Divergence | None:
        """The first difference of an iteration that begins with the expected state."""
        *outer, name = path
        goes_on, went_on = self._actual.ready(condition[0]), self._expected.ready(condition[1])
        ours, theirs = self._actual.ready(body[0]), self._expected.ready(body[1])
        for iteration in range(_MOST_LOOP_ITERATIONS):
            here = (*outer, f"iteration {iteration} of %{name}")
            self._progress(", ".join(here))
            states = [[of_one] for of_one in state]
            expected, actual = went_on(states), goes_on(states)
            if any(bool(actual[d]) != bool(expected[d]) for d in devices):
                return self.within(condition, states, here, devices)
            devices = [d for d in devices if bool(expected[d])]
            if not devices:
                return None
            got, following = ours(states), theirs(states)
            if not _agree(got, following, devices):
                return self.within(body, states, here, devices) or self.report(
                    body[0].root, here, got, following, None, devices
                )
            # Devices whose loop has ended keep their state, which is not compared any more.
            state = [following[d] if d in devices else of_one for d, of_one in enumerate(state)]
        return None

    def report(
        self,
        instruction: Instruction,
        path: tuple[str, ...],
        got: _Values,
        expected: _Values,
        operands: Sequence[list[Any]] | None,
        devices: Sequence[int],
        note: str = "",
    ) -> Divergence:
        """The difference of one instruction's values, on the first of these devices that has one."""
        device, leaf = next((d, x) for d in devices for x in compare(got[d], expected[d]) if not x.agrees)
        index = () if leaf.name == "result" else tuple(int(part) for part in leaf.name.split("."))
        ours, theirs = (_element_of(value[device], index) for value in (got, expected))
        element = _first_difference(ours, theirs)
        if not note and isinstance(instruction.op, While):
            note = "each iteration alone agrees: the difference comes together over iterations"
        operand_values = () if operands is None else operands[device]
        return Divergence(
            instruction,
            path,
            device,
            leaf,
            index,
            element,
            _shown_element(ours, element),
            _shown_element(theirs, element),
            _operand_elements(steps_of(instruction)[0], operand_values, theirs.shape, element),
            self._actual.module.location_of(instruction),
            note,
        )


def _partners(pair: _Pair) -> list[tuple[Instruction, Instruction]]:
    """The instructions of one computation with those of the other: themselves, or what corresponds to them."""
    ours, theirs = pair
    if ours is theirs:
        return [(i, i) for i in ours.instructions if _is_shown(i)]
    partners = matched(ours, theirs, {})
    pairs = [(i, partners[i]) for i in ours.instructions if i in partners and _is_shown(i) and _is_shown(partners[i])]
    return [(i, j) for i, j in pairs if i.shape.without_layout() == j.shape.without_layout()]


def _is_rounding(instruction: Instruction, operands: Sequence[Any], ours: Any, theirs: Any) -> bool:
    """Whether a difference is within the roundings of operands that cancel each other."""
    op = instruction.op
    if op.is_pointwise and not isinstance(op, (Add, Calling, Subtract)):
        return False
    sizes = [
        _largest(array) for operand in operands for _, array in leaves_of(operand) if array.dtype.kind not in "biu"
    ]
    scale = math.prod(sizes) if isinstance(op, (Convolution, Dot)) else max(sizes, default=0.0)
    for (_, actual), (_, expected) in zip(leaves_of(ours), leaves_of(theirs), strict=True):
        kind = PrimitiveType.from_dtype(expected.dtype)
        if not (kind.is_floating or kind.is_complex):
            if not np.array_equal(actual, expected):
                return False
        elif actual.size and not difference(actual, to_widest(expected)).max() <= tolerance_of(kind) * scale:
            return False
    return True


def _largest(array: Array) -> float:
    """The largest absolute value of the finite elements."""
    sizes = np.abs(to_widest(array))
    return float(np.max(sizes[np.isfinite(sizes)], initial=0.0))


def _is_shown(instruction: Instruction) -> bool:
    """Whether the value can be a result whose comparison is conclusive."""
    is_given = isinstance(instruction.op, (Parameter, Constant, Tuple, GetTupleElement, AsyncUpdate, Start))
    return not is_given and all(leaf.is_array for _, leaf in instruction.shape.leaves())


def _known_value(operand: Instruction, values: dict[Instruction, Any], arguments: Sequence[Any]) -> Any:
    """The value of an operand, from the values of a run and its arguments; None where it is not known, as a token's."""
    if operand in values:
        return values[operand]
    if isinstance(operand.op, Parameter):
        return arguments[operand.op.number]
    if isinstance(operand.op, Constant):
        return literal_value(operand.op.literal)
    inner = [_known_value(o, values, arguments) for o in operand.operands]
    if any(value is None for value in inner):
        return None
    if isinstance(operand.op, Tuple):
        return tuple(inner)
    return inner[0][operand.op.index] if isinstance(operand.op, GetTupleElement) else None


def _element_of(value: Any, index: tuple[int, ...]) -> Array:
    for number in index:
        value = value[number]
    return np.asarray(value)


def _first_difference(actual: Array, expected: Array) -> tuple[int, ...]:
    """The index of the first element that differs by more than its type allows."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return ()
    return tuple(int(i) for i in np.argwhere(differing(actual, expected))[0])


def _shown_element(array: Array, element: tuple[int, ...]) -> str:
    value = array[element] if len(element) == array.ndim else array
    if np.ndim(value):
        return f"{PrimitiveType.from_dtype(array.dtype).hlo_name}{list(array.shape)}"
    return str(value)


def _operand_elements(
    instruction: Instruction, operands: Sequence[Any], sizes: tuple[int, ...], element: tuple[int, ...]
) -> tuple[tuple[str, str], ...]:
    elements: list[tuple[str, str]] = []
    for operand, value in zip(instruction.operands, operands, strict=False):
        if value is TOKEN or isinstance(value, tuple) or not operand.shape.is_array:
            return ()
        array = np.asarray(value)
        if array.shape not in ((), sizes):
            return ()
        elements.append((operand.name, _shown_element(array, element if array.shape else ())))
    return tuple(elements)
