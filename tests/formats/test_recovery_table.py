"""The recovery table of a module goes from text to proto and back."""

import pytest

import xlakit as xla
from xlakit.formats.hlo_text.recovery import Recovery, parse_recovery_table, print_recovery_table

TABLE = """{
  {"sum" {1}} : {"sum.sharded"},
  "
HloModule recovery, frontend_attributes={path=\\"a\\\\\\\\b\\"}

ENTRY main {
  x = f32[2]{0} parameter(0)
  ROOT y = f32[2]{0} negate(x)
}
"
  {"old"} : {"new" {0,1}}
}"""
TEXT = f"""HloModule m, replica_count=2, origin_recovery_table={TABLE}

ENTRY main {{
  ROOT x = f32[2]{{0}} parameter(0), origin={{{{"sum.sharded"}}}}
}}
"""


def table_of(module):
    return parse_recovery_table(dict(module.header)["origin_recovery_table"])


def test_the_table_survives_protos():
    module = xla.HloModule.from_text(TEXT)
    again = xla.HloModule.from_proto(module.to_proto())
    first, second = table_of(again)
    assert (first.old, first.new) == (("sum", (1,)), ("sum.sharded", ()))
    assert second == Recovery(("old", ()), ("new", (0, 1)))
    inner = xla.HloModule.from_text(first.module)
    assert inner.entry.root.opcode == "negate"
    assert inner.frontend_attributes == (("path", "a\\b"),)
    # From here on nothing changes any more, in either format.
    assert xla.HloModule.from_text(again.to_text()).to_proto() == again.to_proto()
    assert xla.HloModule.from_proto(again.to_proto()).to_text() == again.to_text()


def test_the_printed_table_is_the_table():
    entries = parse_recovery_table(TABLE)
    stripped = [e._replace(module=e.module.strip("\n")) for e in entries]
    printed = parse_recovery_table(print_recovery_table(entries))
    assert [e._replace(module=e.module.strip().strip("\n")) for e in printed] == stripped


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('{ {"a"} }', "expected ':'"),
        ('{ {} : {"b"} }', "expected a value's name"),
        ('{ {"a"} : {"b"}, 3 }', "a module in quotes"),
        ('{ {"a"} : {"b"}, "HloModule" }', "the module's name"),
        (
            '{ {"a"} : {"b"}, "HloModule n, origin_recovery_table={}  ENTRY e { ROOT x = f32[] parameter(0) }" }',
            "of its own",
        ),
    ],
)
def test_what_cannot_be_a_table_is_not_written(table, said):
    module = xla.HloModule.from_text(TEXT.replace(TABLE, table))
    with pytest.raises(xla.XlakitError, match=said) as caught:
        module.to_proto()
    assert caught.value.hint
