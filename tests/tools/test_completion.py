"""The scripts for shells: what a shell offers after them is what the command line takes."""

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
