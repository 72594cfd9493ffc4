"""The requests of the protocol, answered by ``features.py``: offsets become positions, errors become the protocol's."""

# pygls may be missing where types are checked.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false
from __future__ import annotations

from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams

from xlakit.errors import XlakitError
from xlakit.tools.lsp import features
from xlakit.tools.lsp.checking import Lints
from xlakit.tools.lsp.document import Document
from xlakit.tools.lsp.fixes import fixes
from xlakit.tools.lsp.index import Role
from xlakit.tools.lsp.lines import Position, Span
from xlakit.tools.lsp.server import HloServer, diagnostic, range_of
from xlakit.tools.lsp.tokens import MODIFIERS, TYPES

_KINDS = {
    Role.OPCODE: types.CompletionItemKind.Function,
    Role.OPERAND: types.CompletionItemKind.Variable,
    Role.COMPUTATION: types.CompletionItemKind.Module,
    Role.ATTRIBUTE: types.CompletionItemKind.Property,
    Role.WORD: types.CompletionItemKind.EnumMember,
}
# Characters of a text whose words are colored all at once; editors have grammars for larger ones.
_MOST_COLORED = 2_000_000
_LEGEND = types.SemanticTokensLegend(TYPES, MODIFIERS)


def make_server(lints: Lints) -> HloServer:
    """A server that answers all requests that it names in its capabilities, and warns of what the lints find."""
    server = HloServer(lints)
    for name, options, answer in (
        (types.TEXT_DOCUMENT_HOVER, None, _hover),
        (types.TEXT_DOCUMENT_DEFINITION, None, _definition),
        (types.TEXT_DOCUMENT_REFERENCES, None, _references),
        (types.TEXT_DOCUMENT_RENAME, types.RenameOptions(prepare_provider=True), _rename),
        (types.TEXT_DOCUMENT_PREPARE_RENAME, None, _prepare_rename),
        (types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(["%", "(", ",", "=", "{"]), _complete),
        (types.TEXT_DOCUMENT_DOCUMENT_SYMBOL, None, _symbols),
        (types.TEXT_DOCUMENT_FOLDING_RANGE, None, _folds),
        (types.TEXT_DOCUMENT_INLAY_HINT, None, _hints),
        (types.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL, _LEGEND, _all_tokens),
        (types.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL_DELTA, _LEGEND, _changed_tokens),
        (types.TEXT_DOCUMENT_SEMANTIC_TOKENS_RANGE, _LEGEND, _tokens),
        (types.TEXT_DOCUMENT_FORMATTING, None, _format),
        (types.TEXT_DOCUMENT_CODE_ACTION, types.CodeActionOptions([types.CodeActionKind.QuickFix]), _actions),
    ):
        server.feature(name, options)(answer)
    return server


def _at(server: HloServer, parameters: Any) -> tuple[Document, int]:
    document = server.document(parameters.text_document.uri)
    return document, _offset(document, parameters.position)


def _offset(document: Document, position: Any) -> int:
    return document.lines.offset(Position(position.line, position.character))


def _span(document: Document, text_range: Any) -> Span:
    return Span(_offset(document, text_range.start), _offset(document, text_range.end))


def _hover(server: HloServer, parameters: types.HoverParams) -> types.Hover | None:
    document, offset = _at(server, parameters)
    span_and_text = features.hover(document, offset)
    if span_and_text is None:
        return None
    return types.Hover(
        types.MarkupContent(types.MarkupKind.Markdown, span_and_text[1]), range_of(document, span_and_text[0])
    )


def _definition(server: HloServer, parameters: types.DefinitionParams) -> types.Location | None:
    document, offset = _at(server, parameters)
    symbol = document.symbol_at(offset)
    return None if symbol is None else types.Location(parameters.text_document.uri, range_of(document, symbol.span))


def _references(server: HloServer, parameters: types.ReferenceParams) -> list[types.Location]:
    document, offset = _at(server, parameters)
    symbol = document.symbol_at(offset)
    if symbol is None:
        return []
    spans = [*([symbol.span] if parameters.context.include_declaration else []), *document.uses(symbol)]
    return [types.Location(parameters.text_document.uri, range_of(document, span)) for span in spans]


def _actions(server: HloServer, parameters: types.CodeActionParams) -> list[types.CodeAction]:
    uri = parameters.text_document.uri
    document = server.document(uri)
    only = parameters.context.only
    if only is not None and types.CodeActionKind.QuickFix not in only:
        return []
    actions: list[types.CodeAction] = []
    for fix in fixes(document, _span(document, parameters.range)):
        edits = [types.TextEdit(range_of(document, span), text) for span, text in fix.edits]
        actions.append(
            types.CodeAction(
                fix.title,
                types.CodeActionKind.QuickFix,
                [diagnostic(document, fix.fault)],
                edit=types.WorkspaceEdit({uri: edits}),
            )
        )
    return actions


def _prepare_rename(server: HloServer, parameters: types.PrepareRenameParams) -> types.Range | None:
    document, offset = _at(server, parameters)
    symbol = document.symbol_at(offset)
    if symbol is None:
        return None
    spans = [symbol.span, *document.uses(symbol)]
    here = next((s for s in spans if s.start <= offset <= s.end), None)
    return None if here is None else range_of(document, Span(here.start + (document.text[here.start] == "%"), here.end))


def _rename(server: HloServer, parameters: types.RenameParams) -> types.WorkspaceEdit:
    document, offset = _at(server, parameters)
    try:
        edits = features.rename(document, offset, parameters.new_name)
    except XlakitError as error:
        raise JsonRpcInvalidParams(str(error)) from None
    changes = [types.TextEdit(range_of(document, span), text) for span, text in edits]
    return types.WorkspaceEdit({parameters.text_document.uri: changes})


def _complete(server: HloServer, parameters: types.CompletionParams) -> types.CompletionList:
    document, offset = _at(server, parameters)
    span, completions = features.complete(document, offset)
    replaced_range = range_of(document, span)
    items = [
        types.CompletionItem(
            c.text,
            kind=_KINDS[c.role],
            detail=c.detail or None,
            sort_text=f"{number:04}",
            filter_text=c.text,
            text_edit=types.TextEdit(replaced_range, c.text),
        )
        for number, c in enumerate(completions)
    ]
    # What is typed next is asked for again: names that were left out may come in.
    return types.CompletionList(is_incomplete=True, items=items)


def _symbols(server: HloServer, parameters: types.DocumentSymbolParams) -> list[types.DocumentSymbol]:
    document = server.document(parameters.text_document.uri)

    def symbol(entry: features.Entry, kind: types.SymbolKind) -> types.DocumentSymbol:
        return types.DocumentSymbol(
            entry.name,
            kind,
            range_of(document, entry.span),
            range_of(document, entry.name_span),
            detail=entry.detail or None,
            children=[symbol(child, types.SymbolKind.Variable) for child in entry.children],
        )

    return [symbol(entry, types.SymbolKind.Function) for entry in features.outline(document)]


def _folds(server: HloServer, parameters: types.FoldingRangeParams) -> list[types.FoldingRange]:
    document = server.document(parameters.text_document.uri)
    return [types.FoldingRange(first, last) for first, last in features.folds(document)]


def _hints(server: HloServer, parameters: types.InlayHintParams) -> list[types.InlayHint]:
    document = server.document(parameters.text_document.uri)
    hints = features.hints(document, _span(document, parameters.range))
    return [types.InlayHint(types.Position(*document.lines.position(offset)), text) for offset, text in hints]


def _tokens(server: HloServer, parameters: types.SemanticTokensRangeParams) -> types.SemanticTokens:
    uri = parameters.text_document.uri
    document = server.document(uri)
    return types.SemanticTokens(server.tokens(uri).within(document, _span(document, parameters.range)))


def _all_tokens(server: HloServer, parameters: types.SemanticTokensParams) -> types.SemanticTokens | None:
    """Those of the whole text; none of a text for which that takes seconds."""
    uri = parameters.text_document.uri
    document = server.document(uri)
    if len(document.text) > _MOST_COLORED:
        return None
    name, numbers = server.tokens(uri).whole(document)
    return types.SemanticTokens(numbers, name)


def _changed_tokens(
    server: HloServer, parameters: types.SemanticTokensDeltaParams
) -> types.SemanticTokens | types.SemanticTokensDelta | None:
    """What a change of the text makes of the tokens that an editor has."""
    uri = parameters.text_document.uri
    document = server.document(uri)
    if len(document.text) > _MOST_COLORED:
        return None
    changes = server.tokens(uri).changes(document, parameters.previous_result_id)
    if changes is None:
        name, numbers = server.tokens(uri).whole(document)
        return types.SemanticTokens(numbers, name)
    name, edits = changes
    return types.SemanticTokensDelta([types.SemanticTokensEdit(*edit) for edit in edits], name)


def _format(server: HloServer, parameters: types.DocumentFormattingParams) -> list[types.TextEdit]:
    document = server.document(parameters.text_document.uri)
    try:
        text = features.formatted(document.text, parameters.text_document.uri)
    except XlakitError as error:
        raise JsonRpcInvalidParams(str(error)) from None
    if text == document.text:
        return []
    return [types.TextEdit(range_of(document, Span(0, len(document.text))), text)]
