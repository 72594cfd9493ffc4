"""The lexer that colors HLO text."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pygments import lex
from pygments.token import Comment, Error, Keyword, Name, Number, String

from xlakit.tools.highlighting import HloLexer

_EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "hlo").glob("*.hlo"))

_TEXT = """HloModule m, entry_computation_layout={(f32[2,3]{1,0:T(8,128)})->f32[]}

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}

ENTRY main {
  p = f32[2,3]{1,0} parameter(0), metadata={op_name="x\\"y" source_line=3}
  z = f32[] constant(-1.5e-3) /* one
comment */
  ROOT r = f32[] reduce(p, z), dimensions={0,1}, to_apply=%add
}
"""


@pytest.mark.parametrize("path", _EXAMPLES, ids=lambda path: path.stem)
def test_programs_of_jax_are_lexed_whole(path: Path):
    text = path.read_text()
    tokens = list(lex(text, HloLexer(stripnl=False, ensurenl=False)))
    assert "".join(value for _, value in tokens) == text
    assert not [value for kind, value in tokens if kind is Error]


def test_each_word_has_its_kind():
    tokens = list(lex(_TEXT, HloLexer()))

    def of(*kinds: object) -> set[str]:
        return {value for kind, value in tokens if kind in kinds}

    assert of(Keyword.Declaration) == {"HloModule", "ENTRY", "ROOT"}
    assert of(Name.Namespace) == {"m"}
    assert of(Name.Function) == {"%add", "main"}
    assert {"parameter", "constant", "add", "reduce"} <= of(Name.Builtin)
    assert of(Keyword.Type) == {"f32"}
    assert {"metadata", "op_name", "dimensions", "to_apply"} <= of(Name.Attribute)
    assert {"%a", "%c", "p", "z", "r"} <= of(Name.Variable)
    assert "-1.5e-3" in of(Number)
    assert "".join(v for k, v in tokens if k in Comment.Multiline) == "/* one\ncomment */"
    assert '\\"' in of(String.Escape)


def test_pygments_loads_it_without_the_rest_of_the_package():
    code = "import sys, xlakit.tools.highlighting; print([m for m in sys.modules if m in ('numpy', 'xlakit.face')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
