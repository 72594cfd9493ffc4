"""The package's metadata: what packaging tools and people ask for is there, and names no place on the net."""

import tomllib
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_PROJECT = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]


def test_the_license_is_said_and_shipped():
    assert _PROJECT["license"] == "Apache-2.0"
    (name,) = _PROJECT["license-files"]
    text = (_ROOT / name).read_text()
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    # Packaging tools refuse a classifier beside the expression.
    assert not [c for c in _PROJECT["classifiers"] if c.startswith("License")]


def test_who_made_it_is_said_without_urls():
    assert all(set(author) == {"name"} for author in _PROJECT["authors"])
    assert "urls" not in _PROJECT


def test_it_says_that_it_is_typed():
    assert "Typing :: Typed" in _PROJECT["classifiers"]
    assert (_ROOT / "xlakit" / "py.typed").exists()
