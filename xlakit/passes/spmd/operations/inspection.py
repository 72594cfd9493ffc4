"""The custom call ``InspectSharding``: reports the sharding of its operand to a function of the process, once.

The sharding is final only after the whole program has been traversed, since a loop's body is traversed again if the
tilings of its state change. So shardings are collected, and reported at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from xlakit.ir.attributes import Sharding
from xlakit.passes.spmd.program import Program
from xlakit.passes.spmd.shardings.annotations import as_sharding
from xlakit.passes.spmd.shardings.tilings import parts
from xlakit.passes.spmd.shardings.values import Value, leaves
from xlakit.passes.spmd.walk import Walk

if TYPE_CHECKING:
    from xlakit.ir.instruction import Instruction
    from xlakit.passes.spmd.shardings.scopes import Scope
    from xlakit.passes.spmd.shardings.tilings import Tiling

TARGET: Final = "InspectSharding"

# Called with the call's backend_config and the sharding of its operand.
Inspector = Callable[[str, Sharding], None]

_inspectors: list[Inspector] = []


def register_inspector(inspector: Inspector) -> None:
    """Register the function that receives shardings. Without one, ``InspectSharding`` has no effect."""
    if inspector not in _inspectors:
        _inspectors.append(inspector)


def inspect(walk: Walk, old: Instruction, operands: tuple[Value, ...]) -> Value:
    """Record the sharding of the operand, which is the result of the call, too."""
    (operand,) = operands
    (piece,) = leaves(operand)
    piece = walk.pieces.summed(piece)
    hints = None if walk.frame is None or piece.scope != walk.scope else walk.frame.hints(old.operands[0], walk.scope)
    # A value that every member has computed whole is recomputed in parts if parts are requested.
    tiling = hints[0] if hints and piece.is_whole and piece.source is not None else piece.tiling
    walk.program.inspected[old] = _sharding(tiling, piece.scope)
    return operand


def tell_inspectors(program: Program) -> None:
    """Report the recorded shardings in program order."""
    for instruction, sharding in program.inspected.items():
        for inspector in _inspectors:
            inspector(instruction.annotations.backend_config or "", sharding)


def _sharding(tiling: Tiling, scope: Scope) -> Sharding:
    """A tiling over the members of teams as an HLO sharding, in which the dimension of the teams is manual."""
    if len(scope.teams) == 1:
        return as_sharding(tuple(None if s is None else tuple(scope.of_partitions(list(s))) for s in tiling))
    if scope.size == 1:
        return Sharding("MANUAL")
    # The last dimensions are the copies in a team, and the teams.
    sizes = [parts(split) for split in tiling]
    copies = scope.size
    for size in sizes:
        copies //= size
    members = sorted(range(scope.size), key=lambda m: [0 if s is None else s[m] for s in tiling])
    devices = tuple(team[member] for member in members for team in scope.teams)
    kinds = ("REPLICATED", "MANUAL") if copies > 1 else ("MANUAL",)
    dimensions = (*sizes, *([copies] if copies > 1 else []), len(scope.teams))
    return Sharding("OTHER", dimensions, devices, last_tile_dims=kinds)
