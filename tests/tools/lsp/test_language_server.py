"""The language server, driven over its pipes as an editor does it."""

import signal

import pytest

pytest.importorskip("pygls", reason="pip install 'xlakit[editor]'")

from lsp_client import URI, Client, applied, place, position

from xlakit.ir.instruction import HloModule
from xlakit.tools.lsp.checking import Lints, check

TEXT = """HloModule learning

add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT total = f32[] add(x, y)
}

ENTRY main {
  x = f32[4,8] parameter(0)
  w = f32[8,2] parameter(1)
  product = f32[4,2] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  zero = f32[] constant(0)
  sums = reduce(product, zero), dimensions={1}, to_apply=add
  ROOT result = f32[4] exponential(sums), metadata={op_name="sums of x"}
}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    errors = tmp_path_factory.mktemp("server") / "errors.txt"
    with errors.open("w") as file:
        made = Client(errors=file)
    yield made
    assert (made.stop(), errors.read_text()) == (0, "")


@pytest.fixture
def client(server):
    """The server of all tests, with no text open before and after."""
    yield server
    server.close()


def lines_of(found):
    return [(f["range"]["start"]["line"], f["range"]["start"]["character"]) for f in found]


def test_a_sound_program_has_no_faults(client):
    assert client.open(TEXT) == []


def test_lints_warn_at_the_instruction_by_name(client):
    text = TEXT.replace("  product =", "  unused = f32[] parameter(2)\n  product =")
    (found,) = client.open(text)
    assert (found["severity"], found["code"], found["source"]) == (2, "dead-parameter", "xlakit")
    assert text.splitlines()[lines_of([found])[0][0]].strip().startswith("unused")
    assert "hint: leave it out" in found["message"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\nBufferAssignment:\nallocation 0: size 4\n", "this is a buffer assignment of a module, which XLA dumps"),
        ("module @jit_f {\n}\n", "this is StableHLO, and no HLO text\nhint: xlakit convert FILE --to text"),
        ('{"name": "m"}', "this is JSON, and no HLO text"),
        ('hlo_module {\n  name: "m"\n}\n', "this is the text of a proto, and no HLO text"),
    ],
)
def test_a_text_of_another_format_says_what_it_is(text, said):
    (fault,) = check(text, "f").faults
    assert fault.message.startswith(said)
    assert text.lstrip().startswith(fault.word)
    assert fault.word


def test_lints_are_chosen_and_go_with_faults():
    text = TEXT.replace("  product =", "  unused = f32[] parameter(2)\n  product =")
    assert check(text, "a", Lints(disable=("dead-parameter",))).faults == []
    assert [fault.lint for fault in check(text, "a").faults] == ["dead-parameter"]
    assert [fault.lint for fault in check(text.replace("exponential", "exponentiall"), "a").faults] == [""]


def test_faults_have_the_range_of_their_word_and_all_are_told(client):
    text = TEXT.replace("dot(x, w)", "dott(x, w)").replace("constant(0)", "constant(0), colour=1")
    found = client.open(text)
    assert lines_of(found) == [place(text, "dott"), place(text, "colour")]
    assert found[0]["range"]["end"]["character"] - found[0]["range"]["start"]["character"] == len("dott")
    assert "unknown opcode 'dott'" in found[0]["message"] and "dot" in found[0]["message"].split("hint")[1]


def actions(client, found):
    parameters = {"textDocument": {"uri": URI}, "range": found["range"], "context": {"diagnostics": [found]}}
    return client.request("textDocument/codeAction", parameters)


def test_a_word_that_is_not_known_is_changed_to_what_may_be_meant(client):
    text = TEXT.replace("exponential(sums)", "exponentiel(sums)").replace("to_apply=add", "to_apply=ad")
    found = client.open(text)
    changed = text
    for fault in reversed(found):
        first = actions(client, fault)[0]
        assert first["kind"] == "quickfix"
        changed = applied(changed, first["edit"]["changes"][URI])
    assert changed == TEXT


def test_an_instruction_that_a_warning_is_about_is_not_used_any_more(client):
    twice = "  t = transpose(w), dimensions={1,0}\n  %u = f32[8,2] transpose(t), dimensions={1,0}\n  product ="
    text = TEXT.replace("  product =", twice).replace("dot(x, w)", "dot(x, %u)")
    (found,) = client.open(text)
    assert found["code"] == "redundant-transpose"
    (action,) = actions(client, found)
    assert action["title"] == "Use w instead of u"
    changed = applied(text, action["edit"]["changes"][URI])
    assert changed == text.replace("dot(x, %u)", "dot(x, %w)")
    # After a change that has not been checked there is nothing at that place to be mended.
    client.change(place(text, "%u =", 1), place(text, "%u =", 2), "o")
    assert actions(client, found) == []
    client.diagnostics.get(timeout=60)


def test_faults_of_the_verifier_are_told_with_their_shapes(client):
    (fault,) = client.open(TEXT.replace("product = f32[4,2]", "product = f32[4,3]"))
    assert fault["range"]["start"]["line"] == 11
    assert "f32[4,3]" in fault["message"] and fault["severity"] == 1


def test_changes_are_checked_when_typing_pauses(client):
    client.open(TEXT)
    line, column = place(TEXT, "exponential")
    client.change((line, column), (line, column + 11), "exp")
    (fault,) = client.diagnostics.get(timeout=60)
    assert lines_of([fault]) == [(line, column)]
    assert client.checked_version == client.version
    client.change((line, column), (line, column + 3), "negate")
    assert client.diagnostics.get(timeout=60) == []
    assert client.checked_version == client.version


def test_any_beginning_of_a_text_is_answered(client):
    client.open("")
    for end in range(0, len(TEXT), 7):
        part = TEXT[:end]
        client.version += 1
        document = {"uri": URI, "version": client.version}
        client.notify("textDocument/didChange", {"textDocument": document, "contentChanges": [{"text": part}]})
        line, column = part.count("\n"), len(part) - part.rfind("\n") - 1
        client.at("completion", line, column)
        client.at("hover", line, column)
        client.about("documentSymbol")
        client.about("foldingRange")
    # On a busy machine the empty text is checked, too, which has no faults.
    while not client.diagnostics.get(timeout=60):
        pass


def test_hover_shows_shape_cost_and_the_page_of_the_operation(client):
    client.open(TEXT)
    of_operand = client.at("hover", *place(TEXT, "product, zero"))["contents"]["value"]
    assert "f32[4,2]" in of_operand and "128 flop" in of_operand and "2 operands" in of_operand
    of_opcode = client.at("hover", *place(TEXT, "reduce("))["contents"]["value"]
    assert "`reduce`" in of_opcode and "`dimensions`" in of_opcode
    of_unwritten = client.at("hover", *place(TEXT, "sums ="))["contents"]["value"]
    assert "sums = f32[4] reduce" in of_unwritten
    of_computation = client.at("hover", *place(TEXT, "add\n"))["contents"]["value"]
    assert "3 instructions" in of_computation
    assert client.at("hover", *place(TEXT, "learning")) is None


def test_definition_is_that_of_the_own_computation(client):
    client.open(TEXT)
    found = client.at("definition", *place(TEXT, "x, w"))
    assert lines_of([found]) == [place(TEXT, "x = f32[4,8]")]
    found = client.at("definition", *place(TEXT, "x, y"))
    assert lines_of([found]) == [place(TEXT, "x = f32[]")]
    found = client.at("definition", *place(TEXT, "add\n"))
    assert lines_of([found]) == [place(TEXT, "add {")]


def test_references_are_operands_and_not_words_in_strings(client):
    client.open(TEXT)
    context = {"includeDeclaration": True}
    found = client.at("references", *place(TEXT, "sums ="), context=context)
    assert lines_of(found) == [place(TEXT, "sums ="), place(TEXT, "sums), ")]
    found = client.at("references", *place(TEXT, "add {"), context={"includeDeclaration": False})
    assert lines_of(found) == [place(TEXT, "add\n")]


def test_a_rename_gives_the_same_program(client):
    text = TEXT.replace("x", "%x").replace("e%xponential", "exponential").replace("of %x", "of x")
    client.open(text)
    edits = client.at("rename", *place(text, "%x, w"), newName="%input")["changes"][URI]
    assert len(edits) == 2
    renamed = applied(text, edits)
    assert "%input = f32[4,8]" in renamed and "dot(%input, w)" in renamed and "add(%x, y)" in renamed
    assert HloModule.from_text(renamed) == HloModule.from_text(text)
    edits = client.at("rename", *place(text, "add {"), newName="sum_of")["changes"][URI]
    assert "to_apply=sum_of" in applied(text, edits)
    assert client.at("prepareRename", *place(text, "f32[4,8]")) is None


WRAPPED = """HloModule wrapped,
  input_output_alias={ {}: (0, {}, may-alias) }
branch {
  p = f32[2] parameter(0)
  ROOT n = f32[2] negate(p)
}
ENTRY main {
  x = f32[2] parameter(0),
    frontend_attributes={
      _a="{{0,1}, {1,2}}", // a brace: {
      _b="1"
    }
  c = pred[] constant(true)
  s = f32[1] slice(x),
    slice={[0:1]}
  b = f32[2] concatenate(s, s), dimensions={
      0
    }
  y = f32[2] conditional(c, x, x),
    true_computation=branch, false_computation=branch
  ROOT r = f32[2] add(x, y)
}
"""


def test_attributes_that_begin_a_line_are_no_instructions_and_their_braces_end_no_computation(client):
    text = WRAPPED
    client.open(text)
    outline = client.about("documentSymbol")
    assert [symbol["name"] for symbol in outline] == ["branch", "main"]
    for word in ("input_output_alias", "frontend_attributes", "_b=", "slice={", "true_computation"):
        assert client.at("prepareRename", *place(text, word)) is None, word
    for word, uses in (("x = f32[2]", 5), ("branch {", 3), ("s = f32[1]", 3), ("y = f32[2]", 2)):
        edits = client.at("rename", *place(text, word), newName="other")["changes"][URI]
        assert len(edits) == uses, word
        assert HloModule.from_text(applied(text, edits)) == HloModule.from_text(text)


def test_a_name_that_an_inner_computation_has_too_is_not_renamed(client):
    text = """HloModule m
    ENTRY main {
      x = f32[2] parameter(0)
      s = ((f32[2]), f32[2], s32[]) call-start(x), to_apply={
        x = f32[2] parameter(0)
        ROOT n = f32[2] negate(x)
      }
      ROOT d = f32[2] call-done(s)
    }"""
    client.open(text)
    asked = client.ask("textDocument/rename", client.params(*place(text, "x = f32[2]"), newName="z"))
    assert "several instructions" in asked["error"]["message"]
    edits = client.at("rename", *place(text, "s = (("), newName="z")["changes"][URI]
    assert HloModule.from_text(applied(text, edits)) == HloModule.from_text(text)


@pytest.mark.parametrize("name", ["w", "2x", "a b", ""])
def test_a_rename_to_what_is_no_free_name_is_refused(client, name):
    client.open(TEXT)
    message = client.ask("textDocument/rename", client.params(*place(TEXT, "x, w"), newName=name))
    assert "is taken" in message["error"]["message"] or "is not a name" in message["error"]["message"]


@pytest.mark.parametrize(
    "typed, expected, others",
    [
        ("ROOT r = f32[4] expo", "exponential", {"sums", "dimensions="}),
        ("ROOT r = f32[4] negate(", "sums", {"total", "y", "exponential"}),
        ("ROOT r = f32[4] negate(su", "sums", {"zero"}),
        ("ROOT r = f32[4] reduce(product, zero), ", "dimensions=", {"sums"}),
        ("ROOT r = f32[4] reduce(product, zero), dimensions={1}, to_apply=", "add", {"main", "sums"}),
        ("ROOT r = f32[4] add(sums, sums), ", "sharding=", {"dimensions="}),
        ("ROOT r = pred[4] compare(sums, sums), direction=", "GE", {"sums"}),
    ],
)
def test_completion_knows_what_may_stand_there(client, typed, expected, others):
    at = TEXT.index("  ROOT result")
    text = TEXT[:at] + "  " + typed
    client.open(text)
    items = client.at("completion", text.count("\n"), len(typed) + 2)["items"]
    texts = {item["textEdit"]["newText"] for item in items}
    assert expected in texts and not others & texts


def test_nothing_is_completed_in_strings(client):
    client.open(TEXT)
    assert client.at("completion", *place(TEXT, "of x", 1))["items"] == []


def test_symbols_and_folds_are_computations(client):
    client.open(TEXT)
    found = client.about("documentSymbol")
    assert [s["name"] for s in found] == ["add", "main"]
    assert [s["name"] for s in found[1]["children"]] == ["result"]
    assert [(f["startLine"], f["endLine"]) for f in client.about("foldingRange")] == [(2, 6), (8, 15)]


def test_hints_are_shapes_that_are_not_written_and_costs(client):
    client.open(TEXT)
    whole = {"start": position(0, 0), "end": position(99, 0)}
    labels = {(h["position"]["line"], h["label"].strip()) for h in client.about("inlayHint", range=whole)}
    assert (13, ": f32[4]") in labels
    assert any(line == 11 and label.startswith("128 flop") for line, label in labels)
    assert client.about("inlayHint", range={"start": position(0, 0), "end": position(1, 0)}) == []


def test_tokens_say_what_words_are(client):
    client.open(TEXT)
    data = client.about("semanticTokens/range", range={"start": position(5, 0), "end": position(6, 0)})["data"]
    names = client.capabilities["semanticTokensProvider"]["legend"]["tokenTypes"]
    assert [names[kind] for kind in data[3::5]] == ["variable", "function", "variable", "variable"]
    assert data[2::5] == [5, 3, 1, 1]


def test_editors_that_know_no_ranges_get_all_tokens(client):
    client.open(TEXT)
    whole = {"start": position(0, 0), "end": position(99, 0)}
    assert client.capabilities["semanticTokensProvider"]["full"] == {"delta": True}
    assert client.about("semanticTokens/full")["data"] == client.about("semanticTokens/range", range=whole)["data"]


def test_editors_get_what_changes_of_the_tokens(client):
    client.open(TEXT)
    before = client.about("semanticTokens/full")
    client.change((13, 2), (13, 6), "all_sums")
    changed = client.about("semanticTokens/full/delta", previousResultId=before["resultId"])
    (edit,) = changed["edits"]
    data = before["data"]
    data[edit["start"] : edit["start"] + edit["deleteCount"]] = edit["data"]
    after = client.about("semanticTokens/full")
    assert data == after["data"]
    assert len(edit["data"]) < len(data) / 5
    # Of an answer that is not kept, an editor gets all.
    again = client.about("semanticTokens/full/delta", previousResultId=before["resultId"])
    assert again["data"] == data


def test_formatting_gives_the_same_program_and_is_stable(client):
    text = TEXT.replace("f32[] add(x, y)", "f32[]   add( x,\n    y )").replace(', metadata={op_name="sums of x"}', "")
    client.open(text)
    (edit,) = client.about("formatting", options={"tabSize": 2, "insertSpaces": True})
    new = edit["newText"]
    assert HloModule.from_text(new) == HloModule.from_text(text) and "%" not in new
    assert new.endswith("}\n") and not new.endswith("\n\n")
    end = edit["range"]["end"]
    client.change((0, 0), (end["line"], end["character"]), new)
    assert client.about("formatting", options={"tabSize": 2, "insertSpaces": True}) == []


@pytest.mark.parametrize("comment", ["// why", "/* why */"])
def test_formatting_loses_no_comments_and_no_metadata(client, comment):
    client.open(TEXT.replace("\n\nENTRY", f"\n{comment}\nENTRY"))
    message = client.ask(
        "textDocument/formatting",
        {"textDocument": {"uri": URI}, "options": {"tabSize": 2, "insertSpaces": True}},
    )
    assert "has a comment in line 8" in message["error"]["message"]


def test_formatting_keeps_metadata(client):
    client.open(TEXT)
    (edit,) = client.about("formatting", options={"tabSize": 2, "insertSpaces": True})
    assert 'metadata={op_name="sums of x"}' in edit["newText"]


def test_a_broken_text_is_not_formatted(client):
    client.open(TEXT.replace("dot(", "dott("))
    params = {"textDocument": {"uri": URI}, "options": {"tabSize": 2, "insertSpaces": True}}
    assert "unknown opcode" in client.ask("textDocument/formatting", params)["error"]["message"]


def test_each_of_several_modules_is_checked(client):
    text = f"// first\n{TEXT}// -----\n{TEXT.replace('dot(', 'dott(')}{TEXT}"
    assert lines_of(client.open(text)) == [place(text, "dott")]


def test_an_empty_text(client):
    assert client.open("") == []
    assert client.at("hover", 0, 0) is None
    assert client.at("completion", 0, 0)["items"] == []
    assert client.about("documentSymbol") == []


def test_lines_may_end_with_carriage_returns(client):
    text = TEXT.replace("\n", "\r\n")
    assert client.open(text) == []
    assert lines_of([client.at("definition", *place(text, "sums), "))]) == [place(text, "sums =")]
    line, column = place(text, "exponential")
    client.change((line, column), (line, column + 11), "expo")
    (fault,) = client.diagnostics.get(timeout=60)
    assert lines_of([fault]) == [(line, column)]


@pytest.mark.parametrize("encoding, width", [("utf-8", 4), ("utf-32", 1)])
def test_columns_are_in_the_units_that_were_agreed_on(encoding, width):
    client = Client([encoding])
    check_columns(client, width)
    assert client.stop() == 0


def test_columns_are_in_units_of_utf_16_where_nothing_was_agreed_on(client):
    check_columns(client, 2)


def check_columns(client, width):
    head = '  ROOT result = f32[4] custom-call(p), custom_call_target="'
    text = f'ENTRY main {{\n  p = f32[4] parameter(0)\n{head}𝛼𝛽", colour=1\n}}\n'
    (fault,) = client.open(text)
    assert lines_of([fault]) == [(2, len(head) + 2 * width + 3)]
    column = len(head) + 2 * width + 1
    client.change((2, column), (2, column + len(", colour=1")), "")
    assert client.diagnostics.get(timeout=60) == []


def test_custom_calls_of_others_are_no_fault(client):
    assert client.open('ENTRY e {\n  ROOT c = f32[4] custom-call(), custom_call_target="__others$call"\n}\n') == []


def test_instructions_without_a_computation(client):
    text = "p = f32[2] parameter(0)\nq = add(p, p)\n"
    assert client.open(text) == []
    assert lines_of([client.at("definition", *place(text, "p, p"))]) == [(0, 0)]
    assert "f32[2]" in client.at("hover", 1, 0)["contents"]["value"]


def test_a_text_of_ten_thousand_lines_is_answered_while_it_is_checked(client):
    count = 10_000
    body = "\n".join(f"  v{n} = f32[8] add(v{n - 1}, v{n - 1})" for n in range(1, count))
    text = f"ENTRY main {{\n  v0 = f32[8] parameter(0)\n{body}\n}}\n"
    document = {"uri": URI, "languageId": "hlo", "version": 0, "text": text}
    client.notify("textDocument/didOpen", {"textDocument": document})
    # Answered before the check has ended, which takes a second.
    found = client.at("definition", count, 22)
    assert client.diagnostics.empty()
    assert found["range"]["start"]["line"] == count - 1
    assert client.diagnostics.get(timeout=300) == []
    client.change((500, 2), (500, 4), "renamed")
    assert client.at("definition", 502, 20) is not None and client.at("definition", 501, 20) is None
    (fault, *_) = client.diagnostics.get(timeout=300)
    assert fault["range"]["start"]["line"] == 502 - 1
    context = {"includeDeclaration": True}
    assert len(client.at("references", 9_000, 3, context=context)) == 3


def test_a_refusal_is_an_answer_and_no_traceback(client):
    # A traceback would be in what the server has written at its end. An editor may ask about a closed text.
    assert client.ask("textDocument/hover", client.params(0, 1))["result"] is None
    client.open("HloModule m\nENTRY e {")
    assert "error" in client.ask("textDocument/rename", client.params(0, 1, newName="x"))
    assert "error" in client.ask(
        "textDocument/formatting",
        {"textDocument": {"uri": URI}, "options": {"tabSize": 2, "insertSpaces": True}},
    )


def test_ctrl_c_ends_the_server():
    own = Client()
    own.process.send_signal(signal.SIGINT)
    assert own.process.wait(20) == 130
