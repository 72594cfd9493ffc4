"""Faults of running programs: threads, queues, meetings of devices, the compile cache, and JAX."""

from __future__ import annotations

from fuzz.bug_bank.bug import Bug, Edit

_COMMON_CODE = "xlakit/cpu/kernels/shared/common_code.py"

BUGS: tuple[Bug, ...] = (
    Bug(
        "subnormal-constants",
        "919bb3b",
        ("jax-programs", "training"),
        "JAX's programs are compiled on a thread that takes subnormal numbers for zero, and lose their constants",
        (Edit("xlakit/jax/slots.py", "            with usual.here():\n", "            if usual:\n"),),
    ),
    Bug(
        "options-of-others",
        "b1531de",
        ("cached", "threads", "forced"),
        "functions that programs share are made with the options in force, not with those of the program",
        (
            Edit(_COMMON_CODE, "return of_tag(_tag(symbol))", "return current()"),
            Edit(
                _COMMON_CODE,
                "from xlakit.options import Options, compiling, of_tag",
                "from xlakit.options import Options, compiling, current, of_tag",
            ),
            Edit(
                "xlakit/cpu/kernels/common_families.py",
                '    head, *values = symbol.removeprefix(PREFIX).split(".")\n',
                '    head, *values = symbol.removeprefix(PREFIX).split(".")\n'
                '    if head.partition("$")[2] != current().tag:\n'
                '        raise ValueError(f"{symbol} is to be made with other options than its program")\n',
            ),
        ),
    ),
    Bug(
        "method-looked-up-twice",
        "b6c51a2",
        ("threads", "cached"),
        "two threads look a method of a dataclass up for the first time, and the slower one does not find it",
        (Edit("xlakit/dataclass.py", "is self), None)", "is self))"),),
    ),
    Bug(
        "two-queues",
        "61f053a",
        ("threads", "collectives"),
        "the host and a device come to a queue for the first time at once, and each makes one",
        (
            Edit(
                "xlakit/execution/context.py",
                "        return self.setdefault(key, Feed(self._bounds))",
                "        self[key] = made = Feed(self._bounds)\n        return made",
            ),
        ),
    ),
    Bug(
        "copies-apart",
        "08cf1475",
        ("collectives", "copies"),
        "each copy that passes make of a collective is a rendezvous of its own, and devices wait at two of them",
        (
            Edit(
                "xlakit/cpu/collectives/rendezvous.py",
                "site if site in apart else instruction",
                "instruction",
            ),
        ),
    ),
)
