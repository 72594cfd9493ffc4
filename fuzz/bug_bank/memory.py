"""Faults of memory plans: of what is alive when, and of what may lie in the memory of what else."""

from __future__ import annotations

from fuzz.bug_bank.bug import Bug, Edit

_COALESCING = "xlakit/memory/coalescing.py"
_IN_PLACE = "xlakit/cpu/entry/in_place.py"
_LIVE_RANGES = "xlakit/memory/live_ranges.py"

BUGS: tuple[Bug, ...] = (
    Bug(
        "begun-twice",
        "613f283",
        ("collectives", "idioms"),
        "a value that begins two elements of a loop, one of which changes, is not copied",
        (
            Edit(
                _LIVE_RANGES,
                "for value in loop.outside:\n            self.use(value, 2 * end)",
                "for value in loop.outside:\n            self.use(value, 2 * begin)",
            ),
        ),
    ),
    Bug(
        "shared-while-read",
        "94a0882",
        ("idioms", "idioms-plain"),
        "a result takes the memory of an operand that is read at other places",
        (Edit(_IN_PLACE, "if result in before or access._replace(array=result) not in follow", "if result in before"),),
    ),
    Bug(
        "condition-writes-state",
        "524d809",
        ("idioms", "idioms-plain"),
        "an update in place in a loop's condition writes into the state that the body reads",
        (
            Edit(_LIVE_RANGES, "self.steps(step.condition)\n        test", "self.steps(step.body)\n        test"),
            Edit(_LIVE_RANGES, "self.steps(step.body)\n        back", "self.steps(step.condition)\n        back"),
        ),
    ),
    Bug(
        "other-name",
        "d1562fe",
        ("memory-plans", "idioms"),
        "values under other names in the memory of loop state are overwritten while they are read",
        (Edit(_COALESCING, "for low, high, value in other.entries:", "for low, high, value in other.entries[-1:]:"),),
    ),
    Bug(
        "given-twice",
        "f19e2ed",
        ("memory-plans", "modules"),
        "a value that a kernel is given twice is written over where only one of the two is read at the same elements",
        (
            Edit(
                "xlakit/memory/aliasing.py",
                "if all((result, n) in allowed for n in positions[value]):",
                "if positions:",
            ),
        ),
    ),
    Bug(
        "branch-writes-arguments",
        "2821391",
        ("memory-plans", "idioms"),
        "a branch computes in the memory of arguments that its caller needs afterwards",
        (Edit(_COALESCING, "if max(low, first) < min(high, last) or not self._is_alias", "if not self._is_alias"),),
    ),
    Bug(
        "second-half-forgotten",
        "b981ee5",
        ("collectives", "memory-plans"),
        "what an asynchronous collective was given is free before its second half has read it",
        (
            Edit(
                _LIVE_RANGES,
                "(*step.operands, *step.results, *step.arrival), ()",
                "(*step.results, *step.arrival), ()",
            ),
        ),
    ),
    Bug(
        "between-two-products",
        "fc54dfe",
        ("layers", "memory-plans", "sanitized", "plain-large"),
        "results between two products of a fusion lie in the memory of an array that is read after the second one",
        (
            Edit(_IN_PLACE, "for result in written | now", "for result in {a.array for s in nest for a in s.writes}"),
            Edit(_IN_PLACE, "if not own or writes[0].phase < read.phase or", "if own and"),
            Edit(_IN_PLACE, "if read.element is None or not same:", "if own and not same:"),
        ),
    ),
    Bug(
        "rows-in-another-order",
        "b1301c87",
        ("layers", "memory-plans", "sanitized", "plain-large"),
        "rows of a second product lie in the memory of an array that is read for those of the first, in another order",
        (
            Edit(
                _IN_PLACE,
                "for result in written | now",
                "for result in {a.array for n in phase[: phase.index(nest) + 1] for s in n for a in s.writes}",
            ),
            Edit(
                _IN_PLACE, "if not own or writes[0].phase < read.phase or", "if not own and writes[0] < read or own and"
            ),
            Edit(_IN_PLACE, "if read.element is None or not same:", "if own and not same:"),
        ),
    ),
)
