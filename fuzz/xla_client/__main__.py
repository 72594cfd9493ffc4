"""``python -m fuzz.xla_client --reference PYTHON``: ``xlakit.compat.xla_client`` against jaxlib 0.6.0.

PYTHON is that of an environment with jaxlib 0.6.0, NumPy and ml_dtypes::

    python -m venv ENVIRONMENT && ENVIRONMENT/bin/pip install jaxlib==0.6.0
    python -m fuzz.xla_client --reference ENVIRONMENT/bin/python --count 2000

Compares the parameters of all functions and methods and the values of the expressions in ``expressions/``, where that
is asked for, then drawn calls of the functions of ``ops``: shapes, texts, results and costs of those that both accept,
types of exceptions of the others. Every second call has a fault. Each module answers in a process of its own; a call
that ends jaxlib's process, or does not end, is counted and left out. ``--seed N --count 1`` repeats one call.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fuzz.xla_client.calls import DRAWS, drawn
from fuzz.xla_client.compared import difference
from fuzz.xla_client.draft import Call, spoiled
from fuzz.xla_client.expressions import questions
from fuzz.xla_client.probe import DIED

_ROOT = Path(__file__).parents[2]
# How long an answer may take: a few iterations of jaxlib's do not end.
_SECONDS = 60.0
# Functions of which jaxlib describes one form of several, and a static method that it describes as a method; the
# expressions call them.
_OVERLOADED = {
    "Layout.__init__", "_xla.HloModule.from_serialized_hlo_module_proto", "_xla.dlpack_managed_tensor_to_buffer",
    "_xla.profiler.ProfilerSession.__init__",
}  # fmt: skip


class Answers:
    """The answers of one module, from a process that is started again when a question ends it."""

    def __init__(self, python: str, side: str) -> None:
        self._command = [python, "-m", "fuzz.xla_client.probe", side]
        self._process: subprocess.Popen[str] | None = None

    def ask(self, question: Call) -> dict[str, Any]:
        """The answer; ``{"error": DIED}`` where there is none in time. Raises RuntimeError if none comes at all."""
        if self._process is None:
            environment = {**os.environ, "PYTHONPATH": str(_ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                env=environment, cwd=_ROOT,
            )  # fmt: skip
            if not self._exchange({"ready": True}):
                raise RuntimeError(f"{' '.join(self._command)} does not start")
        line = self._exchange(question)
        if line:
            return json.loads(line)
        self.close()
        return {"error": DIED}

    def _exchange(self, question: Call) -> str:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            return ""
        try:
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            return ""
        there, _, _ = select.select([process.stdout], [], [], _SECONDS)
        return process.stdout.readline() if there else ""

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def compare_signatures(ours: Answers, reference: Answers) -> list[str]:
    """The functions and methods whose parameters differ. What is not there is in tests/compat/test_names.py."""
    mine, theirs = ours.ask({"signatures": True}), reference.ask({"signatures": True})
    lines: list[str] = []
    for name, parameters in sorted(theirs.items()):
        found = mine.get(name, ["?"])
        if name in _OVERLOADED:
            continue
        # Overloads and classes without a constructor take anything.
        if any("?" in p or "*args" in p for p in (found, parameters)):
            continue
        # What callers of jaxlib's cannot name, they may name here.
        unnamed = parameters.index("/") if "/" in parameters else 0
        if _given_by_name(found, unnamed) != _given_by_name(parameters, unnamed):
            lines.append(f"{name}({', '.join(found)}) instead of ({', '.join(parameters)})")
    return lines


def _given_by_name(parameters: Sequence[str], unnamed: int) -> list[str]:
    """The parameters, without the names of the first ones, and of others that have none for callers."""
    unnamed = max(unnamed, parameters.index("/") if "/" in parameters else 0)
    names = [p for p in parameters if p not in ("/", "*")]
    return [f"argument {number}" for number, _ in enumerate(names[:unnamed])] + names[unnamed:]


def compare_calls(ours: Answers, reference: Answers, seeds: Sequence[int], ops: list[str]) -> int:
    """Print the calls whose answers differ; gives their number."""
    differing = died = refused = 0
    for seed in seeds:
        call = drawn(seed, ops)
        if seed % 2:
            call = spoiled(seed, call)
        theirs = reference.ask(call)
        died += theirs.get("error") == DIED
        refused += "error" in theirs and theirs["error"] != DIED
        found = difference(call, ours.ask(call), theirs)
        if found:
            differing += 1
            print(f"seed {seed}: {shown(call)}: {found}", flush=True)
    good = len(seeds) - died - refused
    print(
        f"{len(seeds)} calls, {good} with results, {refused} refused, {died} end jaxlib's process; {differing} differ"
    )
    return differing


def compare_expressions(ours: Answers, reference: Answers) -> int:
    """Print the expressions whose values differ without a reason, or are equal with one; gives their number."""
    count = differing = died = 0
    for reason, question in questions():
        theirs, mine = reference.ask(question), ours.ask(question)
        count += 1
        died += theirs.get("error") == DIED
        if "error" in theirs or "raises NameError" in theirs["words"] or (theirs != mine) == bool(reason):
            # After jaxlib's process ended, names of a block are not known any more.
            continue
        differing += 1
        words = [answer.get("words", "the process ends")[:300] for answer in (mine, theirs)]
        found = (
            f"{words[0]}\n  as there, and not different: {reason}" if reason else f"{words[0]}\n  instead of {words[1]}"
        )
        print(f"{question['block']}: {question['expression']}\n  {found}", flush=True)
    print(f"{count} expressions, {died} end jaxlib's process; {differing} differ")
    return differing


def shown(call: Call) -> str:
    """A call as one line."""
    operands = [f"{dtype}{dimensions}" for dtype, dimensions, _ in call["operands"]]
    given = [json.dumps(value) for value in call["arguments"]]
    given += [f"{name}={json.dumps(value)}" for name, value in call["keywords"].items()]
    return f"{call['op']}({', '.join(given)}) of {', '.join(operands) or 'no operands'}"[:400]


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare; gives the exit status, 1 where something differs."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--reference", required=True, help="the Python of an environment with jaxlib 0.6.0")
    parser.add_argument("--count", type=int, default=500, help="how many calls")
    parser.add_argument("--seed", type=int, default=0, help="that of the first call")
    parser.add_argument("--ops", nargs="+", choices=sorted(DRAWS), default=sorted(DRAWS), metavar="OP")
    parser.add_argument("--signatures", action="store_true", help="compare parameters of functions, too")
    parser.add_argument("--expressions", action="store_true", help="compare values of expressions, too")
    asked = parser.parse_args(arguments)
    ours, reference = Answers(sys.executable, "ours"), Answers(asked.reference, "reference")
    try:
        lines = compare_signatures(ours, reference) if asked.signatures else []
        print("\n".join(lines))
        expressions = compare_expressions(ours, reference) if asked.expressions else 0
        seeds = range(asked.seed, asked.seed + asked.count)
        return 1 if compare_calls(ours, reference, seeds, asked.ops) + len(lines) + expressions else 0
    finally:
        ours.close()
        reference.close()


if __name__ == "__main__":
    sys.exit(main())
