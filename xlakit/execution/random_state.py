"""RandomState: the random state of one device, in words that compiled programs read and write, too."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from xlakit.ir.operation import Array
    from xlakit.ops.shared.random_numbers import Draw

# The words, of eight bytes each:
#   held          not 0 while native code changes the state
#   low, high     the 128-bit state of rng-get-and-update-state
#   key           of the random numbers of rng
#   draws         how many rng instructions have run
RANDOM_WORDS = ("held", "low", "high", "key", "draws")

# Where rng-get-and-update-state begins on XLA's CPU backend.
_FIRST_STATE = 0x7012395

_lock = threading.Lock()


class RandomState:
    """The random state of one device of an executable; it persists from call to call."""

    def __init__(self, seed: int = 0, device: int = 0) -> None:
        self._words = np.zeros(len(RANDOM_WORDS), np.uint64)
        # Neighboring seeds and devices give unrelated keys.
        key = np.random.SeedSequence([seed, device]).generate_state(1, np.uint64)[0]
        self._words[:] = [0, _FIRST_STATE, 0, key, 0]

    @property
    def address(self) -> int:
        """The address of the words, which is fixed for the life of this object."""
        return self._words.ctypes.data

    def draw(self) -> Draw:
        """The next draw."""
        # Machine code may draw at the same time.
        from xlakit.ops.shared.random_numbers import Draw

        with _lock:
            number = int(self._words[4])
            self._words[4] = (number + 1) % 2**64
        return Draw(int(self._words[3]), number)

    @property
    def value(self) -> int:
        """The state of rng-get-and-update-state."""
        return int(self._words[2]) << 64 | int(self._words[1])

    @value.setter
    def value(self, state: int) -> None:
        self._words[1:3] = [state % 2**64, state >> 64]

    @property
    def words(self) -> tuple[int, ...]:
        """Key and count; another state that is set to them continues from here."""
        return tuple(int(word) for word in self._words[1:])

    @words.setter
    def words(self, words: tuple[int, ...]) -> None:
        self._words[1:] = np.array(words, np.uint64)

    def advance(self, delta: int) -> Array:
        """That state as U64[2], low half first; ``delta`` is added to it afterwards."""
        with _lock:
            before = self._words[1:3].copy()
            self.value = (self.value + delta) % 2**128
        return before
