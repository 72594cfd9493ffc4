"""The parser of the command line: argparse, with the words that are like one that is not known."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from xlakit.errors import meant


class Parser(argparse.ArgumentParser):
    """An argparse parser that suggests verbs, options and values of options."""

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """Exit with status 2 for arguments that nothing has asked for."""
        options = [name for name in self._option_string_actions if name.startswith("--")]
        hint = meant(unknown[0].partition("=")[0], options) if unknown[0].startswith("-") else ""
        self.error(f"unrecognized arguments: {' '.join(unknown)}{_line(hint)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            hint = meant(str(value), map(str, action.choices or ()))
            raise argparse.ArgumentError(action, error.message + _line(hint)) from None


def _line(hint: str) -> str:
    return f"\n  hint: {hint}" if hint else ""
