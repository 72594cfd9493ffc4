"""Options: how programs are compiled, beside what they say.

What is here changes machine code and never a result, but for roundings of sums that are added in another order, and
where it says so. So it
is part of the keys of the compile cache, and two settings are the same program twice: that is what the commands of fuzz
compare.

    XLAKIT_PLAIN=memory,fusion,rewrites,inline,llvm     (or ``all``) what is left out; :data:`PLAIN` says what each is
    XLAKIT_CPU=native|x86-64|x86-64-v2|..               the instruction set that code is made for, by its level
                                                        (:mod:`xlakit.cpu.llvm.target`); native is this machine's own
    XLAKIT_VECTOR_BYTES=16|32|64                        the width of the vectors that code is made for
    XLAKIT_FLUSH_SUBNORMALS=1                           products of BF16 may take subnormal numbers for zero, see
                                                        :mod:`xlakit.cpu.kernels.shared.engine`
    XLAKIT_VERIFY=plain                                 every run is compared with one of a plain program; or the names
                                                        of what that leaves out (:mod:`xlakit.cpu.verified`)
    XLAKIT_SANITIZE=1                                   programs run step by step, under a watch over their memory
                                                        (:mod:`xlakit.cpu.sanitizer`)
    XLAKIT_CHECK_MEMORY=1                               the memory plan of each program that is compiled is proved
                                                        (:mod:`xlakit.memory.checker`)
    XLAKIT_TUNE=1                                       alternatives for each kernel are timed when a program is first
                                                        compiled, and the best are kept (:mod:`xlakit.cpu.tuning`)

The environment is read when a program is compiled. One process compiles both ways with :func:`compiling`::

    normal = xlakit.compile(module)
    with compiling(plain="all"):
        plain = xlakit.compile(module)

The options in force are those of the thread's context: threads that help to compile are started with a copy of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Generic, TypeVar

from xlakit.errors import ArgumentError

# What can be left out, and what that means.
PLAIN = {
    "memory": "every value has a buffer of its own: nothing in place, no place used twice, no donation, no new order",
    "fusion": "no pass puts instructions together: every instruction is a kernel of its own",
    "rewrites": "no pass but those that machine code needs",
    "inline": "kernels stay functions, which the entry calls",
    "llvm": "code as LLVM makes it without its passes; loops stay scalar; one thread",
}
_WIDTHS = (16, 32, 64)
# In tags: code that checks the bounds of what it accesses.
CHECKED = "B"
_VARIABLES = ("PLAIN", "VECTOR_BYTES", "VERIFY", "SANITIZE", "CHECK_MEMORY", "CPU", "FLUSH_SUBNORMALS", "TUNE")


_Number = TypeVar("_Number", int, float)


class Knob(Generic[_Number]):
    """A threshold at which the compiler takes another way, such as the elements from which a sort is shared out.

    Small arrays take the way of large ones where a proof sets knobs to ``others``: with every one of them, and in any
    combination, results stay what they are. A default that depends on the machine is a function, which reads
    :func:`xlakit.machine.current`: that is part of all keys. tries: the numbers that tuning compares with the default
    (:mod:`xlakit.cpu.tuning`); functions among them are given it.
    """

    __slots__ = ("_default", "_tries", "name", "others")

    def __init__(
        self,
        name: str,
        default: _Number | Callable[[], _Number],
        others: tuple[_Number, ...],
        tries: Sequence[_Number | Callable[[_Number], _Number]] = (),
    ) -> None:
        self.name = name
        self._default: _Number | Callable[[], _Number] = default
        self._tries = tuple(tries)
        self.others = others

    @property
    def tries(self) -> tuple[_Number, ...]:
        """The numbers that tuning compares with the default."""
        numbers = (chosen(self.default) if callable(chosen) else chosen for chosen in self._tries)
        return tuple(n for n in dict.fromkeys(numbers) if n != self.default)

    @property
    def default(self) -> _Number:
        """What it is where nothing sets it."""
        found = self._default
        return found() if callable(found) else found

    @default.setter
    def default(self, number: _Number) -> None:
        self._default = number

    @property
    def value(self) -> _Number:
        """What it is set to where code is made now."""
        reader = _reader.get()
        if reader is not None:
            reader.add(self.name)
        chosen = _chosen.get()
        found = None if chosen is None else chosen.knobs.get(self.name)
        return self.default if found is None else found  # pyright: ignore

    @property
    def is_set(self) -> bool:
        """Whether code is made with another number than the default."""
        return self.value != self.default


# All knobs of the modules that are loaded, by name.
KNOBS: dict[str, Knob[Any]] = {}


def knob(
    name: str,
    default: _Number | Callable[[], _Number],
    *others: _Number,
    tries: Sequence[_Number | Callable[[_Number], _Number]] = (),
) -> Knob[_Number]:
    """A new knob; the name is that of its module and its own."""
    made = KNOBS[name] = Knob(name, default, others, tries)
    return made


def times(factor: float) -> Callable[[_Number], _Number]:
    """A number that tuning tries: the default, so many times."""

    def scaled(default: _Number) -> _Number:
        return type(default)(default * factor)

    return scaled


# Where knobs that are read are noted.
_reader: ContextVar[set[str] | None] = ContextVar("xlakit_knobs_read", default=None)


@contextmanager
def noting_knobs() -> Generator[set[str]]:
    """The names of the knobs that are read inside of the block, on this thread."""
    names: set[str] = set()
    token = _reader.set(names)
    try:
        yield names
    finally:
        _reader.reset(token)


@dataclass(frozen=True, slots=True)
class Tune:
    """That programs are tuned when they are compiled: for about how many seconds each, and whether also those for which
    something was chosen before.
    """

    seconds: float = 30.0
    again: bool = False


@dataclass(frozen=True, slots=True)
class Options:
    """How programs are compiled.

    plain: names of :data:`PLAIN`. vector_bytes: the width of vectors; 0 for the machine's own. verify: what the program
    leaves out that runs are compared with; empty where they are not. knobs: what knobs are set to, by their names.
    sanitize: whether programs are run step by step, under a watch over their memory. check_memory: whether memory plans
    are proved; that is part of no key, since it changes no code. cpu: the level of the instruction set; empty for all
    of the machine's own. flush_subnormals: whether products of BF16 may take subnormal numbers for zero. tune: whether
    and how long alternatives are timed for programs for which nothing was chosen yet. kernels: knobs of single kernels,
    by their digests, as tuning chose them. These two are part of no key: what was chosen is kept under the program's.
    """

    plain: frozenset[str] = frozenset()
    vector_bytes: int = 0
    verify: frozenset[str] = frozenset()
    knobs: Mapping[str, float] = field(default_factory=dict[str, float])
    sanitize: bool = False
    check_memory: bool = False
    cpu: str = ""
    flush_subnormals: bool = False
    tune: Tune | None = None
    kernels: Mapping[str, Mapping[str, float]] = field(default_factory=dict[str, Mapping[str, float]])

    @property
    def text(self) -> str:
        """All of them, as keys of the compile cache have them."""
        text = f"{','.join(sorted(self.plain))} {self.vector_bytes} {sorted(self.knobs.items())}"
        return text + f" {self.cpu}" + " flush" * self.flush_subnormals + " sanitize" * self.sanitize

    @property
    def tag(self) -> str:
        """What tells code of functions that programs share from that of the default options; empty for those."""
        width = f"w{self.vector_bytes}" if self.vector_bytes else ""
        # Names of common functions are cut at points.
        level = f"c{self.cpu.replace('.', '_')}" if self.cpu else ""
        # Capitals are in no level.
        return level + width + "o" * ("llvm" in self.plain) + CHECKED * self.sanitize


DEFAULT = Options()
_chosen: ContextVar[Options | None] = ContextVar("xlakit_options", default=None)


def current() -> Options:
    """The options in force. Raises ArgumentError where an environment variable is wrong."""
    chosen = _chosen.get()
    if chosen is not None:
        return chosen
    return _of_environment(*(os.environ.get(f"XLAKIT_{name}", "") for name in _VARIABLES))


def is_plain(what: str) -> bool:
    """Whether something of :data:`PLAIN` is left out."""
    return what in current().plain


@contextmanager
def compiling(
    options: Options | None = None,
    *,
    plain: str | Iterable[str] | None = None,
    vector_bytes: int | None = None,
    verify: str | Iterable[str] | None = None,
    knobs: Mapping[str, float] | None = None,
    sanitize: bool | None = None,
    check_memory: bool | None = None,
    cpu: str | None = None,
    flush_subnormals: bool | None = None,
    tune: Tune | bool | None = None,
) -> Generator[Options]:
    """Compile with these options what is compiled inside of the block; by default with those in force.

    options: all of them. plain, verify: names of :data:`PLAIN` or ``"all"``, as a text with commas or one by one.
    knobs: what some knobs are set to, by their names in :data:`KNOBS`. cpu: a level, or ``"native"``; whether there is
    such a level, and this machine runs its code, is told when something is compiled.
    Raises ArgumentError for names and widths that there are not.
    """
    made = current() if options is None else options
    if plain is not None:
        made = replace(made, plain=_names(plain, "plain"))
    if vector_bytes is not None:
        made = replace(made, vector_bytes=_width(str(vector_bytes or ""), "vector_bytes"))
    if verify is not None:
        made = replace(made, verify=_names(verify, "verify"))
    if knobs is not None:
        wrong = sorted(knobs.keys() - KNOBS.keys())
        if wrong:
            raise ArgumentError(
                f"there is no knob {wrong[0]!r}", hint="xlakit.options.KNOBS has those of loaded modules"
            )
        made = replace(made, knobs={**made.knobs, **knobs})
    if sanitize is not None:
        made = replace(made, sanitize=sanitize)
    if check_memory is not None:
        made = replace(made, check_memory=check_memory)
    if cpu is not None:
        made = replace(made, cpu=_level(cpu))
    if flush_subnormals is not None:
        made = replace(made, flush_subnormals=flush_subnormals)
    if tune is not None:
        made = replace(made, tune=Tune() if tune is True else tune or None)
    token = _chosen.set(made)
    try:
        yield made
    finally:
        _chosen.reset(token)


@lru_cache(maxsize=64)
def _of_environment(
    plain: str, width: str, verify: str, sanitize: str, check_memory: str, cpu: str, flush: str, tune: str
) -> Options:
    verified = _names("all" if verify == "plain" else verify, "XLAKIT_VERIFY")
    names, bytes = _names(plain, "XLAKIT_PLAIN"), _width(width, "XLAKIT_VECTOR_BYTES")
    watched, checked = _switch(sanitize, "XLAKIT_SANITIZE"), _switch(check_memory, "XLAKIT_CHECK_MEMORY")
    flushes = _switch(flush, "XLAKIT_FLUSH_SUBNORMALS")
    return Options(
        names,
        bytes,
        verified,
        sanitize=watched,
        check_memory=checked,
        cpu=_level(cpu),
        flush_subnormals=flushes,
        tune=Tune() if _switch(tune, "XLAKIT_TUNE") else None,
    )


def _level(text: str) -> str:
    """The level that a text names; the machine's own set is none."""
    return "" if text == "native" else text


def _switch(text: str, source: str) -> bool:
    if text not in ("", "0", "1"):
        raise ArgumentError(f"{source} is {text!r}", hint="set it to 1")
    return text == "1"


def _names(given: str | Iterable[str], source: str) -> frozenset[str]:
    """The names of :data:`PLAIN` in a text with commas, ``all`` being each of them; ``source`` is where it stands."""
    parts = given.split(",") if isinstance(given, str) else given
    names = {part.strip() for part in parts} - {""}
    wrong = sorted(names - PLAIN.keys() - {"all"})
    if wrong:
        known = ", ".join([*PLAIN, "all"])
        raise ArgumentError(
            f"{source} names {wrong[0]!r}, which is nothing that can be left out", hint=f"known: {known}"
        )
    return frozenset(PLAIN if "all" in names else names)


def _width(text: str, source: str) -> int:
    if text and text not in map(str, _WIDTHS):
        raise ArgumentError(f"{source} is {text!r}", hint="set it to 16, 32 or 64")
    return int(text or 0)
