"""What a fault of the bank is: edits of the sources that put it back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit of a file: ``old``, which must occur in it exactly once, is replaced by ``new``."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Bug:
    """A fault: the commit that mended it, what it did, and the edits that put it back.

    nets: in the order in which they look for it: those that found it when it was put back last, and likely ones.
    needs: the feature of a processor without which it cannot be met.
    """

    name: str
    commit: str
    nets: tuple[str, ...]
    what: str
    edits: tuple[Edit, ...]
    needs: str = ""

    def put_back(self, tree: Path) -> None:
        """Edit the sources below a folder; raises ValueError where they are no longer as they were."""
        for edit in self.edits:
            path = tree / edit.path
            text = path.read_text()
            if text.count(edit.old) != 1:
                raise ValueError(
                    f"{self.name}: {edit.path} has the text to be changed {text.count(edit.old)} times, not once; "
                    f"say in fuzz/bug_bank how the fault is put back now:\n{edit.old}"
                )
            path.write_text(text.replace(edit.old, edit.new))
