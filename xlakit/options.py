"""Options: how programs are compiled, beside what they say.

Options change machine code and never a result, except for roundings of sums that are added in another order, and for
the option that says otherwise. So options are part of the keys of the compile cache, and the commands of fuzz compare a
program with itself under two settings.

    XLAKIT_PLAIN=memory,fusion,rewrites,inline,llvm     (or ``all``) what is left out; :data:`PLAIN` says what each is
    XLAKIT_CPU=native|x86-64|x86-64-v2|..               the level of the instruction set that code is compiled for
                                                        (:mod:`xlakit.target`); native is this machine's own
    XLAKIT_VECTOR_BYTES=16|32|64                        the width of the vectors that code is compiled for
    XLAKIT_FLUSH_SUBNORMALS=0|1                         whether programs take subnormal numbers for zero, as those of
                                                        JAX do by default (:mod:`xlakit.cpu.runtime.float_mode`)
    XLAKIT_VERIFY=plain                                 every run is compared with one of a plain program; or the names
                                                        of what that leaves out (:mod:`xlakit.cpu.debugging.verified`)
    XLAKIT_SANITIZE=1                                   programs run step by step, and their memory is watched
                                                        (:mod:`xlakit.cpu.debugging.sanitizer`)
    XLAKIT_CHECK_MEMORY=1                               the memory plan of each program that is compiled is proved
                                                        (:mod:`xlakit.memory.checker`)
    XLAKIT_TUNE=1                                       alternatives for each kernel are timed when a program is first
                                                        compiled, and the best are kept (:mod:`xlakit.cpu.tuning`)
    XLAKIT_KNOBS=NAME=NUMBER,..                         values of knobs, such as collective_matmul.when=2
    XLAKIT_PROFILE=DIR                                  programs take the times of their steps, and the process writes
                                                        them when it ends (:mod:`xlakit.cpu.profiling`)

The environment is read when a program is compiled. One process compiles both ways with :func:`compiling`::

    normal = xlakit.compile(module)
    with compiling(plain="all"):
        plain = xlakit.compile(module)

The current options belong to the context of the thread: threads that help to compile start with a copy of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field, replace
from functools import lru_cache
from importlib import import_module
from typing import Any, Generic, TypeVar

from xlakit.dataclass import dataclass
from xlakit.errors import ArgumentError

# The parts of compilation that can be left out, and the effect.
PLAIN = {
    "memory": "every value has a buffer of its own: nothing in place, no place used twice, no donation, no new order",
    "fusion": "no pass puts instructions together: every instruction is a kernel of its own",
    "rewrites": "no pass but those that machine code needs",
    "inline": "kernels stay functions, which the entry calls",
    "llvm": "code as LLVM makes it without its passes; loops stay scalar; one thread",
}
_WIDTHS = (16, 32, 64)
# In tags: code that checks the bounds of its memory accesses.
CHECKED = "B"
_VARIABLES = (
    "XLAKIT_PLAIN",
    "XLAKIT_VECTOR_BYTES",
    "XLAKIT_VERIFY",
    "XLAKIT_SANITIZE",
    "XLAKIT_CHECK_MEMORY",
    "XLAKIT_CPU",
    "XLAKIT_FLUSH_SUBNORMALS",
    "XLAKIT_TUNE",
    "XLAKIT_PROFILE",
    "XLAKIT_KNOBS",
)


_Number = TypeVar("_Number", int, float)


class Knob(Generic[_Number]):
    """A threshold at which the compiler takes another strategy, such as the elements from which a sort is parallel.

    With knobs set to ``others``, in any combination, small arrays are compiled with the strategies of large ones, and
    results do not change; fuzz tests rely on that. A default that depends on the machine is a function that reads
    :func:`xlakit.machine.current`, which is part of all keys. tries: the numbers that tuning compares with the default
    (:mod:`xlakit.cpu.tuning`); functions among them are called with the default.
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
        """The value if nothing sets it."""
        found = self._default
        return found() if callable(found) else found

    @default.setter
    def default(self, number: _Number) -> None:
        self._default = number

    @property
    def value(self) -> _Number:
        """The value for the code that is compiled now."""
        reader = _reader.get()
        if reader is not None:
            reader.add(self.name)
        chosen = _chosen.get()
        if chosen is None and "XLAKIT_KNOBS" in os.environ:
            chosen = current()
        if chosen is not None and chosen.knobs:
            found = chosen.knobs.get(self.name)
            if found is not None:
                return found  # pyright: ignore
        # As `default` has it, without another call: a compilation reads tens of thousands of values.
        default = self._default
        return default() if callable(default) else default

    @property
    def is_set(self) -> bool:
        """Whether the value differs from the default."""
        return self.value != self.default


# The knobs of the modules that are loaded, by name; load_knobs() loads those of the others.
KNOBS: dict[str, Knob[Any]] = {}


def knob(
    name: str,
    default: _Number | Callable[[], _Number],
    *others: _Number,
    tries: Sequence[_Number | Callable[[_Number], _Number]] = (),
) -> Knob[_Number]:
    """A new knob; its name is that of its module and its own name in it."""
    made = KNOBS[name] = Knob(name, default, others, tries)
    return made


def load_knobs() -> None:
    """Import all modules of the compiler, each of which adds its knobs to :data:`KNOBS`."""
    # Imported here: programs do not need it.
    from pkgutil import walk_packages

    for package in ("xlakit.cpu", "xlakit.passes"):
        for found in walk_packages(import_module(package).__path__, f"{package}."):
            import_module(found.name)


def times(factor: float) -> Callable[[_Number], _Number]:
    """A multiple of the default, for tuning to try."""

    def scaled(default: _Number) -> _Number:
        return type(default)(default * factor)

    return scaled


# The set in which the names of knobs are collected when they are read, if any.
_reader: ContextVar[set[str] | None] = ContextVar("xlakit_knobs_read", default=None)


@contextmanager
def noting_knobs() -> Generator[set[str]]:
    """Collect the names of the knobs that this thread reads inside of the block."""
    names: set[str] = set()
    token = _reader.set(names)
    try:
        yield names
    finally:
        _reader.reset(token)


@dataclass(frozen=True, slots=True)
class Tune:
    """Tuning at compilation: the seconds for each program, and whether programs tuned before are tuned again."""

    seconds: float = 30.0
    again: bool = False


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a compilation.

    plain: names of :data:`PLAIN`. vector_bytes: the width of vectors; 0 for the machine's own. verify: each run is
    compared with a run of a program compiled with these names as ``plain``; empty for no comparison. knobs: values of
    knobs by name. sanitize: whether programs run step by step while their memory is watched. check_memory: whether
    memory plans are proved; it is part of no key, since it changes no code. cpu: the level of the instruction set;
    empty for the machine's own. flush_subnormals: whether subnormal numbers are zero; None if it was not set: then they
    are for JAX's programs alone. tune: whether and how long alternatives are timed for programs that were not tuned
    yet. kernels: knobs of single kernels, by their digests, as tuning chose them. These two are part of no key: the
    choice is stored under the program's key. profile: whether programs take the times of their steps.
    """

    plain: frozenset[str] = frozenset()
    vector_bytes: int = 0
    verify: frozenset[str] = frozenset()
    knobs: Mapping[str, float] = field(default_factory=dict[str, float])
    sanitize: bool = False
    check_memory: bool = False
    cpu: str = ""
    flush_subnormals: bool | None = None
    tune: Tune | None = None
    kernels: Mapping[str, Mapping[str, float]] = field(default_factory=dict[str, Mapping[str, float]])
    profile: bool = False

    @property
    def text(self) -> str:
        """All options, as part of the keys of the compile cache."""
        text = f"{','.join(sorted(self.plain))} {self.vector_bytes} {sorted(self.knobs.items())}"
        return (
            text
            + f" {self.cpu}"
            + " flush" * bool(self.flush_subnormals)
            + " sanitize" * self.sanitize
            + " profile" * self.profile
        )

    @property
    def tag(self) -> str:
        """A suffix of the names of common functions: the options that their code depends on; empty for the default.

        :func:`of_tag` reads it.
        """
        # Names of common functions are split at periods, and have no plus signs. No level contains capitals.
        level = [f"c{self.cpu.replace('.', '_').replace('+', 'P')}"] if self.cpu else []
        width = [f"w{self.vector_bytes}"] if self.vector_bytes else []
        return "$".join([*level, *width, *["o"] * ("llvm" in self.plain), *[CHECKED] * self.sanitize])


def of_tag(tag: str) -> Options:
    """The options of a tag; options on which no common function depends have their defaults."""
    parts = tag.split("$")
    level = next((part[1:].replace("_", ".").replace("P", "+") for part in parts if part.startswith("c")), "")
    width = next((int(part[1:]) for part in parts if part.startswith("w")), 0)
    return Options(frozenset(["llvm"] if "o" in parts else []), width, sanitize=CHECKED in parts, cpu=level)


DEFAULT = Options()
_chosen: ContextVar[Options | None] = ContextVar("xlakit_options", default=None)


def current() -> Options:
    """The current options. Raises ArgumentError if an environment variable is invalid."""
    chosen = _chosen.get()
    if chosen is not None:
        return chosen
    return _of_environment(tuple([os.environ.get(name, "") for name in _VARIABLES]))


def is_plain(what: str) -> bool:
    """Whether a part of compilation, named as in :data:`PLAIN`, is left out."""
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
    profile: bool | None = None,
) -> Generator[Options]:
    """Use these options for compilations inside of the block; those not given stay as they are.

    options: all of them. plain, verify: names of :data:`PLAIN` or ``"all"``, as a text with commas or one by one.
    knobs: values of knobs by their names in :data:`KNOBS`. cpu: a level, or ``"native"``; an unknown level, or one that
    this machine cannot run, raises when a program is compiled.
    Raises ArgumentError for unknown names and widths.
    """
    made = current() if options is None else options
    if plain is not None:
        made = replace(made, plain=_names(plain, "plain"))
    if vector_bytes is not None:
        made = replace(made, vector_bytes=_width(str(vector_bytes or ""), "vector_bytes"))
    if verify is not None:
        made = replace(made, verify=_names(verify, "verify"))
    if knobs is not None:
        _check_knobs(knobs)
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
    if profile is not None:
        made = replace(made, profile=profile)
    token = _chosen.set(made)
    try:
        yield made
    finally:
        _chosen.reset(token)


@lru_cache(maxsize=64)
def _of_environment(texts: tuple[str, ...]) -> Options:
    """The options for the texts of the variables."""
    given: dict[str, str] = dict(zip(_VARIABLES, texts, strict=True))
    verify = given["XLAKIT_VERIFY"]

    def is_on(variable: str) -> bool:
        return _switch(given[variable], variable)

    return Options(
        plain=_names(given["XLAKIT_PLAIN"], "XLAKIT_PLAIN"),
        vector_bytes=_width(given["XLAKIT_VECTOR_BYTES"], "XLAKIT_VECTOR_BYTES"),
        verify=_names("all" if verify == "plain" else verify, "XLAKIT_VERIFY"),
        sanitize=is_on("XLAKIT_SANITIZE"),
        check_memory=is_on("XLAKIT_CHECK_MEMORY"),
        cpu=_level(given["XLAKIT_CPU"]),
        flush_subnormals=is_on("XLAKIT_FLUSH_SUBNORMALS") if given["XLAKIT_FLUSH_SUBNORMALS"] else None,
        tune=Tune() if is_on("XLAKIT_TUNE") else None,
        profile=bool(given["XLAKIT_PROFILE"]),
        knobs=_knobs(given["XLAKIT_KNOBS"]),
    )


def _check_knobs(names: Iterable[str]) -> None:
    if not KNOBS.keys() >= set(names):
        load_knobs()
    if wrong := sorted(set(names) - KNOBS.keys()):
        raise ArgumentError(f"there is no knob {wrong[0]!r}", hint="xlakit.options.KNOBS has all of them")


def _knobs(text: str) -> Mapping[str, float]:
    """The values of knobs that the environment variable has."""
    found: dict[str, float] = {}
    for part in filter(None, text.split(",")):
        name, _, number = part.partition("=")
        try:
            value = float(number)
        except ValueError:
            raise ArgumentError(
                f"XLAKIT_KNOBS has {part!r}", hint="write NAME=NUMBER, with commas between several"
            ) from None
        found[name.strip()] = int(value) if number.strip().lstrip("-").isdigit() else value
    _check_knobs(found)
    return found


def _level(text: str) -> str:
    """The level that a text names; empty for the machine's own instruction set."""
    return "" if text == "native" else text


def _switch(text: str, source: str) -> bool:
    if text not in ("", "0", "1"):
        raise ArgumentError(f"{source} is {text!r}", hint="set it to 1, or 0")
    return text == "1"


def _names(given: str | Iterable[str], source: str) -> frozenset[str]:
    """The names of :data:`PLAIN` in a text with commas, or all of them for ``all``; errors name the ``source``."""
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
