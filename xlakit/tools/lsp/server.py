"""The server: keeps the editor's texts, checks them in a thread when typing pauses, and publishes diagnostics.

pygls, which speaks the protocol, is loaded here and in ``answers.py`` alone.
"""

# pygls may be missing where types are checked.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false
from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlparse

from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer

import xlakit
from xlakit.tools.lsp.checking import Checked, Fault, Lints, check
from xlakit.tools.lsp.document import Document
from xlakit.tools.lsp.lines import Span
from xlakit.tools.lsp.tokens import Tokens

# Seconds without a change after which a text is checked.
_PAUSE = 0.3


@dataclass(slots=True)
class _Open:
    """A text that is open in the editor, its colors, and the check of it that waits or runs."""

    document: Document
    tokens: Tokens = field(default_factory=Tokens)
    task: asyncio.Task[None] | None = None


class HloServer(LanguageServer):
    """A language server for HLO text."""

    def __init__(self, lints: Lints) -> None:
        super().__init__("xlakit", xlakit.__version__, text_document_sync_kind=types.TextDocumentSyncKind.Incremental)
        self._lints = lints
        logging.getLogger("pygls.protocol.json_rpc").addFilter(is_fault)
        self._open: dict[str, _Open] = {}
        # One check at a time: they share Python's lock with the answers.
        self._checks = ThreadPoolExecutor(1, "check")
        self.feature(types.TEXT_DOCUMENT_DID_OPEN)(_opened)
        self.feature(types.TEXT_DOCUMENT_DID_CHANGE)(_changed)
        self.feature(types.TEXT_DOCUMENT_DID_CLOSE)(_closed)

    def document(self, uri: str) -> Document:
        """The text of an editor as it is now; an empty one where it is closed: an answer may come after that."""
        opened = self.workspace.text_documents.get(uri)
        text = "" if opened is None else str(opened.source)
        known = self._open.get(uri)
        if known is not None and known.document.text == text:
            return known.document
        chosen: Any = self.workspace.position_encoding
        encoding = str(getattr(chosen, "value", chosen))  # of the protocol's enumeration, or a word
        # Costs are shown from the last version that had no faults.
        document = Document(text, None if known is None else known.document.checked, encoding)
        if known is not None:
            known.document = document
        return document

    def tokens(self, uri: str) -> Tokens:
        """The colors of a text; none are kept of one that is closed."""
        known = self._open.get(uri)
        return Tokens() if known is None else known.tokens

    def open(self, uri: str) -> None:
        """Keep a text that was opened, and check it at once."""
        self._open[uri] = _Open(self.document(uri))
        self.schedule(uri, 0.0)

    def close(self, uri: str) -> None:
        """Forget a text and its diagnostics."""
        known = self._open.pop(uri, None)
        if known is not None and known.task is not None:
            known.task.cancel()
        self._publish(uri, [])

    def schedule(self, uri: str, delay: float = _PAUSE) -> None:
        """Check a text after a delay in seconds; replaces an earlier schedule of the text."""
        known = self._open.get(uri)
        if known is None:
            return
        if known.task is not None:
            known.task.cancel()
        known.task = asyncio.get_running_loop().create_task(self._check(uri, delay))

    async def _check(self, uri: str, delay: float) -> None:
        """Check a text after a while; a later change cancels it, or at least its diagnostics."""
        await asyncio.sleep(delay)
        known = self._open[uri]
        document = self.document(uri)
        opened = self.workspace.text_documents.get(uri)
        version = None if opened is None else opened.version
        loop = asyncio.get_running_loop()
        try:
            checked = await loop.run_in_executor(self._checks, check, document.text, _name_of(uri), self._lints)
        except Exception as error:  # a fault of xlakit's own: reported, and the server goes on
            message = f"xlakit could not check the text: {type(error).__name__}: {error}"
            self.window_log_message(types.LogMessageParams(types.MessageType.Error, message))
            return
        estimates = document.checked.estimates if checked.estimates is None else checked.estimates
        document.checked = Checked(checked.faults, estimates)
        if self._open.get(uri) is not known or known.document is not document:
            return
        self._publish(uri, [diagnostic(document, fault) for fault in checked.faults], version)

    def _publish(self, uri: str, diagnostics: list[Any], version: int | None = None) -> None:
        # By the version an editor tells diagnostics of an older text, whose places have moved.
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, diagnostics, version))


def is_fault(record: logging.LogRecord) -> bool:
    """Whether a log record of pygls is an internal fault, not a refused request, of which the editor is told anyway."""
    return record.exc_info is None or not isinstance(record.exc_info[1], JsonRpcInvalidParams)


# Plain functions, as pygls sets attributes on handlers, which bound methods do not allow.


def _opened(server: HloServer, parameters: Any) -> None:
    server.open(parameters.text_document.uri)


def _changed(server: HloServer, parameters: Any) -> None:
    server.schedule(parameters.text_document.uri)


def _closed(server: HloServer, parameters: Any) -> None:
    server.close(parameters.text_document.uri)


def range_of(document: Document, span: Span) -> types.Range:
    """A span as the protocol has it."""
    lines = document.lines
    return types.Range(types.Position(*lines.position(span.start)), types.Position(*lines.position(span.end)))


def diagnostic(document: Document, fault: Fault) -> types.Diagnostic:
    """A fault as the protocol has it."""
    severity = types.DiagnosticSeverity.Warning if fault.lint else types.DiagnosticSeverity.Error
    code = fault.lint or None
    span = range_of(document, fault.span)
    return types.Diagnostic(span, fault.message, severity=severity, code=code, source="xlakit")


def _name_of(uri: str) -> str:
    return unquote(urlparse(uri).path) or uri
