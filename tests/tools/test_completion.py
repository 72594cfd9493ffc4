"""The scripts for shells: what a shell offers after them is what the command line takes."""

import os
import re
import shutil
import subprocess

import pytest

from xlakit.tools import cli
from xlakit.tools.commands.completion import verbs_of

BASH, ZSH, FISH = (shutil.which(shell) for shell in ("bash", "zsh", "fish"))


def script(shell, capsys):
    assert cli.main(["completion", shell]) == 0
    return capsys.readouterr().out


def offered(text, *words):
    """What bash offers for the last word, of which it has been told where the words end."""
    quoted = " ".join(f"'{word}'" for word in words)
    ask = f'\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _xlakit; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run([BASH, "--norc", "-c", text + ask], capture_output=True, text=True, check=True, timeout=60)
    assert not done.stderr
    return done.stdout.split()


@pytest.mark.skipif(BASH is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["re"], ["reduce"]),
        (["run", "--tr"], ["--traceback", "--trace"]),
        (["run", "--backend", ""], ["cpu", "interpreter"]),
        (["run", "--backend", "=", "in"], ["interpreter"]),
        (["run", "--backend", "="], ["cpu", "interpreter"]),
        (["diff", "--backend", "c"], ["cpu"]),
        (["run", "--seed", "--"], []),
        (["run", "x"], []),
        (["completion", ""], ["bash", "zsh", "fish"]),
    ],
)
def test_bash_offers(words, expected, capsys):
    assert offered(script("bash", capsys), "xlakit", *words) == expected


@pytest.mark.skipif(BASH is None, reason="bash is not installed")
def test_bash_offers_all_verbs_and_their_options(capsys):
    text, verbs = script("bash", capsys), verbs_of(cli.parser())
    assert offered(text, "xlakit", "") == [*verbs, "--help", "--version"]
    assert {"run", "check", "reduce", "completion"} <= set(verbs)
    for name in ("run", "reduce", "diff"):
        flags = [flag for option in verbs[name].options for flag in option.names]
        assert offered(text, "xlakit", name, "-") == flags


@pytest.mark.parametrize(("shell", "program"), [("bash", BASH), ("zsh", ZSH), ("fish", FISH)])
def test_the_shell_reads_its_script(shell, program, capsys, tmp_path):
    text = script(shell, capsys)
    assert "interpreter" in text
    if program is None:
        pytest.skip(f"{shell} is not installed")
    file = tmp_path / "completion"
    file.write_text(text)
    done = subprocess.run([program, "-n", str(file)], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


# What starts each shell without a person's files, and its first line.
STARTS = {
    "bash": (["--norc", "--noprofile", "-i"], "bind 'set enable-bracketed-paste off'; . ./script"),
    "zsh": (["-f", "-i"], "unsetopt zle_bracketed_paste; autoload -Uz compinit; compinit -u -D; . ./script"),
    "fish": (["--no-config", "-i"], "source ./script"),
}


@pytest.fixture(params=STARTS)
def typed(request, tmp_path, capsys):
    """Types a line and Tab into a shell; gives what the line becomes."""
    pexpect = pytest.importorskip("pexpect", reason="no pexpect to type into a shell with")
    program = shutil.which(request.param)
    if program is None:
        pytest.skip(f"{request.param} is not installed")
    (tmp_path / "script").write_text(script(request.param, capsys))
    (tmp_path / "step.hlo").write_text("")
    arguments, first = STARTS[request.param]
    environment = {**os.environ, "TERM": "dumb" if request.param != "fish" else "xterm", "HOME": str(tmp_path)}
    shell = pexpect.spawn(
        program, arguments, cwd=tmp_path, env=environment, encoding="utf-8", dimensions=(50, 200), timeout=60
    )
    # The number is what tells the answer from what is typed.
    shell.sendline(f"{first}; printf 'ready-%d\\n' 2")
    shell.expect("ready-2")

    def line(text, expected):
        shell.send(f"{text}\t")
        # Shells move the cursor and set colors, and fish shows in gray what a line may become.
        seen = re.escape(expected).replace(r"\ ", r"(?:\x1b[^a-zA-Z]*[a-zA-Z]|\s)+")
        shell.expect(seen)
        shell.sendcontrol("u")

    yield line
    shell.close(force=True)


def test_a_person_types_in_a_shell(typed):
    typed("xlakit comple", "xlakit completion ")
    typed("xlakit --ver", "--version")
    typed("xlakit run --trace --shad", "--shadow")
    typed("xlakit run --backend inter", "interpreter")
    typed("xlakit run --backend=inter", "=interpreter")
    typed("xlakit run ste", "step.hlo")
    typed("xlakit run --input ste", "step.hlo")
