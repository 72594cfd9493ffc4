"""``python -m fuzz.workbench.verbs``: every verb on every kind of file that XLA dumps for programs of JAX.

XLA's passes run in a process of their own with the flags that dump: HLO before, between and after passes, as text and
as protos, compressed or not, snapshots of three kinds, and what is dumped beside modules. A program must go through
each verb from each of its dumps. What is no program is refused in a sentence, with the exit status of the documents; a
traceback, another status, or silence is a fault. The exit status is 1 where there is a fault.

Another ``--seed`` than 0 draws for each program what else XLA is told to dump, and which passes it leaves out or how
hard it tries, so that the programs in the dumps are others; and the passes whose dumps are tried.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from fuzz.support.numbered import command
from fuzz.workbench.programs import names
from xlakit.tools import cli
from xlakit.tools.commands.shared import load

_TEXT, _PROTO = "--xla_dump_hlo_as_text", "--xla_dump_hlo_as_proto"
# XLA dumps unoptimized snapshots and nothing else where it is asked for them.
_FLAGS: Final[Mapping[str, Sequence[str]]] = {
    "all": (_TEXT, _PROTO, "--xla_dump_hlo_snapshots", "--xla_dump_hlo_as_dot", "--xla_dump_hlo_as_html"),
    "passes": (_TEXT, _PROTO, "--xla_dump_hlo_pass_re=.*"),
    "long": (_TEXT, _PROTO, "--xla_dump_hlo_as_long_text", "--xla_dump_large_constants", "--xla_dump_compress_protos"),
    "given-proto": (_PROTO, "--xla_dump_hlo_unoptimized_snapshots"),
    "given-text": (_TEXT, "--xla_dump_hlo_unoptimized_snapshots"),
}
# Of each pass it has a page with a drawing for each of its fusions: hours, and gigabytes.
_DRAWN: Final = "--xla_dump_fusion_visualization"
# What a seed adds: to what a dump has, and to what XLA makes of the program.
_FORMS: Final = (
    "--xla_dump_hlo_as_long_text",
    "--xla_dump_large_constants",
    "--xla_dump_disable_metadata",
    "--xla_dump_compress_protos",
    "--xla_dump_module_metadata",
    _DRAWN,
)
_WAYS: Final = (
    "--xla_backend_optimization_level=0",
    "--xla_backend_optimization_level=1",
    "--xla_disable_hlo_passes=fusion",
    "--xla_disable_hlo_passes=cse,dce",
    "--xla_disable_hlo_passes=algsimp,layout-assignment",
    "--xla_disable_hlo_passes=call-inliner,while-loop-simplifier",
)
# What a file is, by its name.
_KINDS: Final = (
    ("snapshot", r"\.snapshot\..*\.pb$"),
    ("unoptimized snapshot, binary", r"unoptimized_snapshot\.pb$"),
    ("unoptimized snapshot, text", r"unoptimized_snapshot\.txt$"),
    ("text before", r"before_optimizations\.txt$"),
    ("proto before", r"before_optimizations\.hlo\.pb$"),
    ("proto before, compressed", r"before_optimizations\.hlo\.pb\.gz$"),
    ("text after", r"after_optimizations\.txt$"),
    ("proto after", r"after_optimizations\.hlo\.pb$"),
    ("proto after, compressed", r"after_optimizations\.hlo\.pb\.gz$"),
    ("text of a pass", r"\.\d{4}\..*\.txt$"),
    ("proto of a pass", r"\.\d{4}\..*\.hlo\.pb$"),
    ("StableHLO", r"\.mlir$"),
    ("beside: buffers", r"-buffer-assignment(-values)?\.txt$"),
    ("beside: live ranges", r"-live-range\.txt$"),
    ("beside: memory, text", r"-memory-usage-report\.txt$"),
    ("beside: memory, proto", r"-memory-usage-report\.pb(\.gz)?$"),
    ("beside: drawing", r"\.dot$"),
    ("beside: page", r"\.html$"),
    ("beside: options", r"debug_options$"),
    ("beside: compile options", r"compile_options\.pb$"),
    ("beside: topology", r"topology\.pb$"),
    ("beside: LLVM", r"\.ll$"),
    ("beside: object", r"\.o$"),
)
# Verbs with options. FILE, OUT and ROOT stand for the file, a new path, and the name of the program's root.
_VERBS: Final = (
    "run FILE --fill-elided zeros -o OUT",
    "run FILE --fill-elided zeros --compare interpreter",
    "run FILE --fill-elided zeros --trace",
    "run FILE --fill-elided zeros --shadow f64",
    "run FILE --fill-elided zeros --against interpreter",
    "run FILE --fill-elided zeros --profile --iterations 1",
    "run FILE --fill-elided zeros --trace --each-iteration --json",
    "check FILE",
    "check FILE --enable all --json",
    "convert FILE --to text",
    "convert FILE --to proto -o OUT",
    "convert FILE --to json",
    "diff FILE FILE",
    "diff FILE FILE --run --fill-elided zeros --ignore all",
    "opt FILE",
    "opt FILE --diff",
    "inspect FILE --as hlo",
    "inspect FILE --fill-elided zeros --as llvm",
    "inspect FILE --fill-elided zeros --as llvm-raw",
    "inspect FILE --fill-elided zeros --as assembly",
    "inspect FILE --fill-elided zeros --as memory-plan",
    "inspect FILE --fill-elided zeros --as fallbacks",
    "inspect FILE --as cost",
    "inspect FILE --as memory",
    "inspect FILE --as collectives",
    "view FILE -o OUT",
    "view FILE --fill-elided zeros --memory -o OUT",
    "view FILE --no-passes -o OUT",
    "view FILE FILE -o OUT",
    "bisect FILE --fill-elided zeros --compare cpu,interpreter",
    "reduce FILE --fill-elided zeros --compare cpu,interpreter -o OUT",
    "extract FILE --fill-elided zeros --instruction ROOT -o OUT",
    "extract FILE --fill-elided zeros --instruction ROOT --depth 3 -o OUT",
    "tune FILE --fill-elided zeros --seconds 1",
)
# The statuses of a program that is well formed; bisect and reduce find two equal backends equal.
_GOOD: Final = {"bisect": 1, "reduce": 1}
# Of a file that is none; diff has 1 for differences.
_BAD: Final = {"diff": 2}
_CHILD = """
import sys, jax
from fuzz.workbench.programs import program
function, arguments = program(sys.argv[1])
jax.block_until_ready(jax.jit(function)(*arguments))
"""
# Not those by which JAX makes the arguments.
_MODULE = re.compile(
    r"module_\d+\.jit_(?!convert_element_type|broadcast_in_dim|multiply|iota|stage|_normal|_threefry_seed)"
)


def dump(program: str, flags: Sequence[str], folder: Path) -> None:
    """Let jaxlib dump a program into a folder."""
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": " ".join([f"--xla_dump_to={folder}", *flags]),
    }
    command = [sys.executable, "-c", _CHILD, program]
    subprocess.run(command, env=environment, check=True, capture_output=True)


def drawn(rng: random.Random | None) -> list[str]:
    """Flags of XLA beside those of a kind of dump; none without a source."""
    if rng is None:
        return []
    return [*rng.sample(_FORMS, rng.randrange(3)), *rng.sample(_WAYS, rng.randrange(2))]


def kind_of(path: Path) -> str | None:
    """What a file is; None for one of a kind that is not looked at."""
    return next((kind for kind, pattern in _KINDS if re.search(pattern, path.name)), None)


def chosen(folder: Path, passes: int, rng: random.Random | None = None) -> dict[str, list[Path]]:
    """The files of the module of a program, by kind: of passes so many, of the rest two of each; evenly, or drawn."""
    found: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(folder.rglob("*")):
        kind = kind_of(path)
        if kind is not None and path.is_file() and _MODULE.search(str(path.relative_to(folder))):
            found[kind].append(path)
    return {kind: _some(paths, passes if "pass" in kind else 2, rng) for kind, paths in found.items()}


def _some(paths: Sequence[Path], count: int, rng: random.Random | None) -> list[Path]:
    if rng is not None:
        return rng.sample(paths, min(count, len(paths)))
    step = max(1, -(-len(paths) // count))
    return list(paths[::step])


def called(verb: str, path: Path, folder: Path) -> tuple[int | str, str, str]:
    """The exit status of a verb, or the exception that left it, and what it printed."""
    words = {"FILE": str(path), "OUT": str(folder / "out"), "ROOT": _root(path) if "ROOT" in verb else ""}
    # Protos are written to the bytes below the text.
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status: int | str = cli.main([words.get(word, word) for word in verb.split()])
        except SystemExit as stopped:
            status = f"SystemExit {stopped.code}"
        except Exception as error:  # any is a fault
            status = f"{type(error).__name__}: {error}"
    _remove(folder / "out")
    printed, told = (stream.buffer.getvalue().decode() for stream in (out, err))
    return status, printed, told


def _root(path: Path) -> str:
    try:
        entry = load(str(path)).entry
    except Exception:  # the verb says what is wrong
        return "root"
    inner = [i for i in (*entry.root.operands, entry.root) if i.opcode not in ("parameter", "constant", "tuple")]
    return inner[-1].name if inner else entry.root.name


def _remove(path: Path) -> None:
    for own in sorted(path.rglob("*"), reverse=True) if path.is_dir() else ():
        own.rmdir() if own.is_dir() else own.unlink()
    if path.is_dir():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


def fault_of(verb: str, kind: str, answer: tuple[int | str, str, str]) -> str | None:
    """Describe the fault of an answer; "" if there is none."""
    status, out, err = answer
    name = verb.split(maxsplit=1)[0]
    expected = _BAD.get(name, 1) if kind.startswith("beside") else _GOOD.get(name, 0)
    if status != expected:
        return f"status {status}, not {expected}: {(err or out).strip()[:300]}"
    if "Traceback" in out + err:
        return "a traceback"
    if status != 0 and not _sentence(verb, out, err):
        return f"no sentence: {err[:200]!r}"
    return None


def _sentence(verb: str, out: str, err: str) -> bool:
    """Whether a failure was told: on standard error, or as an object for each program."""
    if "--json" not in verb.split():
        return re.match(r"xlakit: .{20,}", err) is not None
    return all(len(json.loads(line)["error"]["message"]) > 12 for line in out.splitlines()) and bool(out)


def tried(calls: Iterable[tuple[str, Path, str]], folder: Path) -> list[str]:
    """The faults, and on standard output a line for each verb and kind."""
    faults: list[str] = []
    rows: dict[tuple[str, str], list[float]] = defaultdict(list)
    for kind, path, verb in calls:
        start = time.process_time()
        fault = fault_of(verb, kind, called(verb, path, folder))
        rows[kind, verb].append(time.process_time() - start)
        if fault is not None:
            faults.append(f"{kind}: {path.name}: xlakit {verb}: {fault}")
            print("FAULT", faults[-1], flush=True)
    for (kind, verb), seconds in rows.items():
        print(f"{kind:28} {verb:72} {len(seconds):3} files, at most {max(seconds):.2f} s")
    return faults


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = command("fuzz.workbench.verbs", __doc__)
    parser.add_argument("--program", action="append", choices=names(), help="this one alone; by default all")
    parser.add_argument(
        "--verb", action="append", choices=sorted({v.split()[0] for v in _VERBS}), help="this one alone"
    )
    parser.add_argument("--kind", help="kinds of files that contain this")
    parser.add_argument("--passes", type=int, default=4, help="files of passes of each program (4)")
    parser.add_argument("--seed", type=int, default=0, help="of what is dumped besides, and which of it is tried (0)")
    parser.add_argument("--sample", type=int, help="so many calls for each program, drawn; by default all")
    options = parser.parse_args(arguments)
    verbs = [verb for verb in _VERBS if not options.verb or verb.split()[0] in options.verb]
    faults: list[str] = []
    with tempfile.TemporaryDirectory(prefix="verbs-") as name:
        for program in options.program or names():
            print(f"== {program}", flush=True)
            rng = random.Random(f"{options.seed} {program}") if options.seed else None
            for kind, flags in _FLAGS.items():
                given = [*flags, *(flag for flag in drawn(rng) if flag not in flags)]
                if kind == "passes" and _DRAWN in given:
                    given.remove(_DRAWN)
                if rng is not None:
                    print(f"{kind}: {' '.join(given)}", flush=True)
                dump(program, given, Path(name) / program / kind)
            found = chosen(Path(name) / program, options.passes, rng)
            files = [(kind, path) for kind, paths in found.items() for path in paths if (options.kind or "") in kind]
            calls = [(kind, path, verb) for kind, path in files for verb in verbs]
            if options.sample is not None:
                drawing = random.Random(f"{options.seed} {program} calls")
                calls = drawing.sample(calls, min(options.sample, len(calls)))
            faults += tried(calls, Path(name))
    print(f"{len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
