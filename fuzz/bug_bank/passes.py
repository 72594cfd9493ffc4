"""Faults of passes."""

from __future__ import annotations

from fuzz.bug_bank.bug import Bug, Edit

_OVERWRITTEN = "xlakit/passes/loops/overwritten.py"

BUGS: tuple[Bug, ...] = (
    Bug(
        "exponential-dots",
        "1014537",
        ("compile-time", "jax-programs", "idioms", "training"),
        "the summation loops of a small product are named by the product alone, so that a chain of them is written out",
        (
            Edit(
                "xlakit/passes/fusion/views.py",
                "read.loops.of(user, k, within=view, reduces=True)",
                "read.loops.of(user, k)",
            ),
        ),
    ),
    Bug(
        "fusion-in-one-precision",
        "d80eddb",
        ("modules-fused", "modules", "jax-programs"),
        "arguments of fusions of operations on elements are converted to the widest float among them",
        (
            Edit(
                "xlakit/passes/canonicalize/normalize_precision.py",
                "    if op.can_call:\n        # Arguments of other",
                "    if op.can_call and not op.is_pointwise:\n        # Arguments of other",
            ),
        ),
    ),
    Bug(
        "open-result",
        "d0e6aee",
        ("jax-sharded", "sharded"),
        "a single result that is an open constraint comes out whole",
        (
            Edit(
                "xlakit/passes/spmd/shardings/annotations.py",
                "return [None] * len(shardings) if _is_constraint(root) else shardings",
                "return shardings",
            ),
        ),
    ),
    Bug(
        "paths-of-invariants",
        "cb89414",
        ("compile-time", "idioms", "jax-programs"),
        "values are looked at for motion out of a loop once for each path to them",
        (Edit("xlakit/passes/loops/invariants.py", "        seen.add(instruction)\n", ""),),
    ),
    Bug(
        "window-at-an-end",
        "8545409b",
        ("forms",),
        "a window that a condition leaves out is written at the first place: as if the rule had taken 0 for outside",
        (Edit("xlakit/passes/simplify/indexing.py", "outside = make.full(-1, ", "outside = make.full(0, "),),
    ),
    Bug(
        "merged-across-order",
        "7b186733",
        ("copies", "collectives"),
        "clusters are merged although one is a control predecessor of what lies between them: fusion never ends",
        (
            Edit(
                "xlakit/passes/fusion/instruction_fusion.py",
                "[(i, self._predecessors(i)) for i in others]",
                "[(i, ()) for i in others]",
            ),
        ),
    ),
    Bug(
        "collectives-of-shared-bodies",
        "0d4e4c08",
        ("collectives", "copies"),
        "collectives move out of a body that loops of different trip counts share, in which devices meet",
        (
            Edit(
                "xlakit/passes/loops/invariants.py",
                "sites_met_apart(module, by_caller=True)",
                "sites_met_apart(module)",
            ),
        ),
    ),
    Bug(
        "order-of-copies",
        "08cf1475",
        ("copies", "collectives"),
        "fusion moves a collective behind another one in one copy of a computation alone",
        (
            Edit(
                "xlakit/passes/fusion/instruction_fusion.py",
                "self._previous = dict(zip(effects[1:], effects, strict=False))",
                "self._previous = dict(zip(effects[:0], effects, strict=False))",
            ),
        ),
    ),
    Bug(
        "steps-met-apart",
        "08cf1475",
        ("copies", "sharded", "collectives"),
        "products of gathered arrays are computed in steps where devices meet in copies that are not",
        (
            Edit(
                "xlakit/passes/scheduling/collective_matmul.py",
                "numbers, apart = Numbers.of(module), sites_met_apart(module)",
                "numbers, apart = Numbers.of(module), frozenset[str]()",
            ),
        ),
    ),
    Bug(
        "read-before-written",
        "fb059cb1",
        ("idioms", "idioms-plain", "idioms-watched", "training"),
        "initial values are left out of arrays that a loop writes piece by piece, and reads before that",
        (
            Edit(
                _OVERWRITTEN,
                "return readers == [update] and users[update] == [loop.body.root]",
                "return update in readers",
            ),
        ),
    ),
    Bug(
        "written-in-part",
        "fb059cb1",
        ("idioms", "idioms-watched"),
        "initial values are left out of arrays of which a loop writes some pieces alone",
        (Edit(_OVERWRITTEN, " and iterations * size == sizes[dimension]", ""),),
    ),
)
