"""What a notebook shows of modules and views."""

from __future__ import annotations

import html


def frame_of(page: str, title: str) -> str:
    """A frame with a page in it. The page has no access to the notebook."""
    return (
        f'<iframe srcdoc="{html.escape(page)}" title="{html.escape(title)}" sandbox="allow-scripts" '
        'style="width: 100%; height: 600px; border: 1px solid #888"></iframe>'
    )
