"""The recipe of an executable: how it was compiled. Copies and pickles of executables compile the program again.

Machine code, threads and addresses belong to a process. So an executable is copied by its recipe (the module, in a
pickle as a proto, the arguments of its compilation, and the options) and its random states. Compiling the recipe takes
the machine code from the compile cache, if it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from xlakit.data.immutable import Immutable
from xlakit.dataclass import dataclass
from xlakit.deprecation import renamed_attribute
from xlakit.errors import UnsupportedError
from xlakit.execution.options import ExecutionOptions
from xlakit.execution.random_state import RandomState
from xlakit.options import Options, compiling, current

if TYPE_CHECKING:
    from xlakit.execution.context import ExecutionContext
    from xlakit.execution.groups import Grid
    from xlakit.ir.instruction import HloModule

# For each device the words of its RandomState.
States = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Recipe(Immutable):
    """How an executable was compiled.

    compile: a backend's ``compile_module``. execution: without a context, which belongs to one process. arguments: the
    other arguments. options: how the compiler made code.
    """

    compile: Callable[..., Any]
    module: HloModule
    execution: ExecutionOptions
    arguments: Mapping[str, Any]
    options: Options

    def make(self, states: States, execution_context: ExecutionContext | None = None) -> Any:
        """Another executable with these random states; it has feeds and channels of its own if no context is given."""
        with compiling(self.options):
            executable: Recompiled = self.compile(
                self.module, self.execution.in_context(execution_context), **self.arguments
            )
        executable.random_states = states
        return executable


class Recompiled:
    """An executable of a module on some devices, which can be copied and pickled once its recipe is known.

    execution_context: the infeeds, outfeeds and channels of its devices. shared_context: the same, if it was given to
    it; None if it has its own. random: the random state of each device. Device numbers are
    ``replica * num_partitions + partition``.
    """

    _recipe: Recipe | None = None
    world = renamed_attribute("world", "execution_context")

    def __init__(
        self,
        module: HloModule,
        grid: Grid,
        execution_context: ExecutionContext,
        shared_context: ExecutionContext | None,
        random: Sequence[RandomState],
    ) -> None:
        self.module = module
        self.grid = grid
        self.num_replicas, self.num_partitions = grid.num_replicas, grid.num_partitions
        self.num_devices = grid.num_devices
        self.execution_context, self.shared_context = execution_context, shared_context
        self.random = random

    def made_by(
        self, compile: Callable[..., Any], module: HloModule, execution: ExecutionOptions, **arguments: Any
    ) -> Self:
        """Set the recipe; gives the executable itself."""
        self._recipe = Recipe(compile, module, execution.in_context(None), arguments, current())
        return self

    @property
    def recipe(self) -> Recipe:
        """The recipe; raises UnsupportedError if there is none, or if it depends on this process."""
        if self._recipe is None:
            raise UnsupportedError("an executable that no compilation made cannot be copied", hint="compile it again")
        execution_context = self.shared_context
        if execution_context is not None and execution_context.spans_processes:
            raise UnsupportedError(
                "an executable on the devices of several processes cannot be copied",
                hint="let each of the processes compile the module",
            )
        return self._recipe

    @property
    def random_states(self) -> States:
        """The random state of each device."""
        return tuple(state.words for state in self.random)

    @random_states.setter
    def random_states(self, states: States) -> None:
        for state, words in zip(self.random, states, strict=True):
            state.words = words

    def __copy__(self) -> Self:
        """Another executable of the program; it shares feeds and channels where this one was given them."""
        return self.recipe.make(self.random_states, self.shared_context)

    def __deepcopy__(self, memo: object) -> Self:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (self.recipe, self.random_states)


def _made(recipe: Recipe, states: States) -> Any:
    return recipe.make(states)
