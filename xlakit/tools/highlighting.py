"""HLO text in color: a lexer for Pygments, which MkDocs, Sphinx, Jupyter and `pygmentize` find by the name ``hlo``.

Pygments loads this file by its entry point; nothing else of the package is loaded with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from pygments.lexer import RegexLexer, bygroups
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Text, Whitespace

_IDENTIFIER = r"[A-Za-z_][\w.\-]*"
_TYPE = r"(?:pred|token|opaque|[suf]\d+\w*|bf16|c64|c128)(?=\[)|\b(?:token|opaque)\b"
_NUMBER = r"[+-]?(?:(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?|0x[0-9a-fA-F]+|inf|nan(?:\(0x[0-9a-f]+\))?)(?![\w.])"


class HloLexer(RegexLexer):
    """HLO text, as XLA, JAX and xlakit print it."""

    name = "HLO"
    url = "https://openxla.org/xla"
    aliases: ClassVar[Sequence[str]] = ["hlo"]
    filenames: ClassVar[Sequence[str]] = ["*.hlo"]
    mimetypes: ClassVar[Sequence[str]] = ["text/x-hlo"]
    version_added = ""

    tokens: ClassVar[dict[str, Any]] = {
        "root": [
            (r"\s+", Whitespace),
            (r"//[^\n]*", Comment.Single),
            (r"/\*", Comment.Multiline, "comment"),
            (r'"', String.Double, "string"),
            (r"(HloModule)(\s+)(" + _IDENTIFIER + ")", bygroups(Keyword.Declaration, Whitespace, Name.Namespace)),
            (r"\b(?:ENTRY|ROOT)\b", Keyword.Declaration),
            # A computation before its body or its signature.
            (r"%?" + _IDENTIFIER + r"(?=\s*(?:\([^{}=]*\)\s*->[^{}]*)?\{\s*$)", Name.Function),
            (_TYPE, Keyword.Type),
            # What is defined stands before an equals sign with spaces, an attribute before one without.
            (r"%?" + _IDENTIFIER + r"(?=\s+=\s)", Name.Variable),
            (_IDENTIFIER + r"(?==)", Name.Attribute),
            (r"(?:true|false)\b", Keyword.Constant),
            (_NUMBER, Number),
            (_IDENTIFIER + r"(?=\()", Name.Builtin),
            (r"%" + _IDENTIFIER, Name.Variable),
            # Layouts, tilings and dimension labels: {1,0:T(8,128)}, b01f_01io->b01f, 3x3.
            (r"->", Operator),
            (_IDENTIFIER, Name),
            (r"\d[\w]*", Number),
            (r"[<>=|*?+\-&:#@%.;~!$^'\\]", Operator),
            (r"[\[\](){},/]", Punctuation),
        ],
        "comment": [(r"\*/", Comment.Multiline, "#pop"), (r"[^*]+", Comment.Multiline), (r"\*", Comment.Multiline)],
        "string": [(r"\\.", String.Escape), (r'"', String.Double, "#pop"), (r'[^"\\]+', String.Double), (r"\\", Text)],
    }
