"""The generated documents: signatures as a person writes calls, with types and defaults."""

import ast
from pathlib import Path

from xlakit.ops.registry import PAGES
from xlakit.tools.listing import functions_of

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()


def signatures() -> dict[str, str]:
    blocks = [block.split("```")[0] for block in PAGE.split("```python\n")[1:]]
    return {block.partition("(")[0]: block.strip() for block in blocks}


def test_every_signature_has_types_and_defaults():
    found = signatures()
    names = {name for page in PAGES for name, _ in functions_of(page)}
    assert set(found) == names
    for name, text in found.items():
        parsed = ast.parse(f"def {text}: ...").body[0]
        arguments = parsed.args.args + parsed.args.kwonlyargs
        assert all(argument.annotation is not None for argument in arguments), name
        assert parsed.returns is not None, name


def test_defaults_and_keywords_are_those_of_the_call():
    found = signatures()
    assert "is_stable: bool = False" in found["sort"]
    assert found["conditional"] == "conditional(*args: Any, **named: Any) -> XlaOp"
    assert "element_type: PrimitiveType | None = None" in found["constant"]
    assert "    *,\n    lhs_dilation: Sequence[int] = ()," in found["conv_with_general_padding"]
