"""``xlakit completion``: scripts by which shells complete verbs and options, from the parser of the command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from xlakit.tools.commands.shared import BackendName, Commands, add_command


@dataclass(frozen=True, slots=True)
class Option:
    """An option: its names, its help as a line, whether it takes a value, and the known values if they are few."""

    names: tuple[str, ...]
    help: str
    takes_value: bool
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb: its line of help, its options, and the values of arguments that are no files."""

    help: str
    options: tuple[Option, ...]
    words: tuple[str, ...]


def add(commands: Commands, root: argparse.ArgumentParser) -> None:
    """Add the verb; ``root`` is the parser whose verbs the scripts complete."""
    parser = add_command(commands, "completion", "print a script by which a shell completes verbs and options")
    parser.add_argument("shell", choices=tuple(_SHELLS), help="the shell that reads the script")
    parser.epilog = 'bash: eval "$(xlakit completion bash)"; zsh the same, after compinit; fish: ... | source'

    def run(options: argparse.Namespace) -> int:
        print(_SHELLS[options.shell](verbs_of(root)), end="")
        return 0

    parser.set_defaults(command=run)


def verbs_of(root: argparse.ArgumentParser) -> dict[str, Verb]:
    """The verbs of a parser, in the order of its help."""
    # argparse names neither the actions of a parser nor their classes publicly.
    actions = [a for a in root._actions if isinstance(a, argparse._SubParsersAction)]  # pyright: ignore
    lines = {choice.dest: choice.help or "" for action in actions for choice in action._choices_actions}  # pyright: ignore
    parsers: Mapping[str, argparse.ArgumentParser] = {name: p for a in actions for name, p in a.choices.items()}
    return {name: _verb(parser, lines.get(name, "")) for name, parser in parsers.items()}


def _verb(parser: argparse.ArgumentParser, summary: str) -> Verb:
    actions = [action for action in parser._actions if action.help != argparse.SUPPRESS]  # pyright: ignore
    options = [_option(parser, action) for action in actions if action.option_strings]
    words = [str(word) for action in actions if not action.option_strings for word in action.choices or ()]
    return Verb(summary, tuple(options), tuple(words))


def _option(parser: argparse.ArgumentParser, action: argparse.Action) -> Option:
    text = (action.help or "") % {"default": action.default, "prog": parser.prog, "metavar": action.metavar}
    known = action.suggested if isinstance(action, BackendName) else action.choices
    choices = tuple(str(choice) for choice in known or ())
    return Option(tuple(action.option_strings), " ".join(text.split()), action.nargs != 0, choices)


# Of the command without a verb.
_FIRST = {"--help": "show the verbs", "--version": "show the version"}

_BASH = """\
_xlakit() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]} words=
  # bash takes --option=value apart at the sign.
  if [[ $current == = ]]; then current=
  elif [[ $previous == = ]]; then previous=${COMP_WORDS[COMP_CWORD-2]}; fi
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W "@verbs@" -- "$current"))
    return
  fi
  case "$verb $previous" in
@values@
  esac
  case $verb in
@options@
  esac
  # Without a reply readline completes names of files.
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _xlakit xlakit
"""


def _bash(verbs: Mapping[str, Verb]) -> str:
    values: list[str] = []
    options: list[str] = []
    for name, verb in verbs.items():
        for option in verb.options:
            if option.takes_value:
                pattern = "|".join(f'"{name} {flag}"' for flag in option.names)
                reply = (
                    f'COMPREPLY=($(compgen -W "{" ".join(option.choices)}" -- "$current")); ' if option.choices else ""
                )
                values.append(f"    {pattern}) {reply}return ;;")
        flags = " ".join(flag for option in verb.options for flag in option.names)
        other = f" else words='{' '.join(verb.words)}';" if verb.words else ""
        options.append(f"    {name}) if [[ $current == -* ]]; then words='{flags}';{other} fi ;;")
    text = _BASH.replace("@verbs@", " ".join((*verbs, *_FIRST))).replace("@values@", "\n".join(values))
    return text.replace("@options@", "\n".join(options))


def _zsh(verbs: Mapping[str, Verb]) -> str:
    names = "\n".join(f"    {_quoted(f'{name}:{verb.help}')}" for name, verb in verbs.items())
    flags = " ".join(_quoted(f"{flag}:{text}") for flag, text in _FIRST.items())
    cases = "\n".join(_zsh_case(name, verb) for name, verb in verbs.items())
    return f"""\
#compdef xlakit
_xlakit() {{
  local -a verbs=(
{names}
  )
  local -a flags=({flags})
  if ((CURRENT == 2)); then
    if [[ $words[2] == -* ]]; then _describe -o option flags; else _describe command verbs; fi
    return
  fi
  local verb=$words[2]
  shift words
  ((CURRENT -= 1))
  case $verb in
{cases}
  esac
}}
compdef _xlakit xlakit
"""


def _zsh_case(name: str, verb: Verb) -> str:
    specs: list[str] = []
    for option in verb.options:
        text = "".join(f"\\{c}" if c in "[]:\\" else c for c in option.help)
        value = (
            f":value:({' '.join(option.choices)})" if option.choices else ":value:_files" if option.takes_value else ""
        )
        # With the sign a value follows it, or is the next word.
        sign = "=" if value else ""
        specs += [_quoted(f"{flag}{sign if flag[:2] == '--' else ''}[{text}]{value}") for flag in option.names]
    specs.append(_quoted(f"*:value:({' '.join(verb.words)})" if verb.words else "*:file:_files"))
    return f"    {name}) _arguments {' '.join(specs)} ;;"


def _fish(verbs: Mapping[str, Verb]) -> str:
    first = "complete -c xlakit -n __fish_use_subcommand"
    lines = [f"{first} -l {flag[2:]} -d {_fish_quoted(text)}" for flag, text in _FIRST.items()]
    for name, verb in verbs.items():
        lines.append(f"{first} -f -a {name} -d {_fish_quoted(verb.help)}")
        seen = f"complete -c xlakit -n '__fish_seen_subcommand_from {name}'"
        if verb.words:
            lines.append(f"{seen} -f -a '{' '.join(verb.words)}'")
        for option in verb.options:
            flags = " ".join(f"-l {f[2:]}" if f.startswith("--") else f"-s {f[1:]}" for f in option.names)
            value = f" -x -a '{' '.join(option.choices)}'" if option.choices else " -r" if option.takes_value else ""
            lines.append(f"{seen} {flags}{value} -d {_fish_quoted(option.help)}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_SHELLS: dict[str, Callable[[Mapping[str, Verb]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
