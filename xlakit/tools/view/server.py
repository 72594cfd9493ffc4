"""``xlakit view --serve``: serves the page of files on this machine only, and updates it when the files change."""

from __future__ import annotations

import html
import threading
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

from xlakit.errors import ResourceError, XlakitError
from xlakit.tools.view.page import with_reload

_HOST: Final = "127.0.0.1"
_POLICY: Final = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'"


class LivePage:
    """A page of files, which is made anew when they have changed.

    make: gives the page's HTML. Its errors are shown in place of the page until the files change again.
    """

    def __init__(self, files: Sequence[str], make: Callable[[], str]) -> None:
        self._files = [Path(file) for file in files]
        self._make = make
        self._lock = threading.Lock()
        self._version = ""
        self._page = ""

    def version(self) -> str:
        """A text that differs when a file does: the times and sizes of the files."""
        return " ".join(_state_of(file) for file in self._files)

    def page(self) -> str:
        """The page of the files as they are now, which asks for their version and loads itself again."""
        with self._lock:
            # The version is taken before the files are read, so a change in between is noticed with the next request.
            version = self.version()
            if version != self._version:
                try:
                    html = self._make()
                except (XlakitError, OSError) as error:
                    html = _page_of_error(error)
                self._version, self._page = version, with_reload(html, version)
            return self._page


def server_of(page: LivePage, port: int) -> ThreadingHTTPServer:
    """A server for a page on 127.0.0.1, which answers nothing else; port 0 takes a free one.

    Raises ResourceError where the port cannot be used.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # Another host name in the request: a page of another origin (DNS rebinding), which is refused.
            host = self.headers.get("Host", "").rpartition(":")[0]
            if host not in (_HOST, "localhost"):
                self._answer(HTTPStatus.FORBIDDEN, "text/plain", "this server is for this machine alone\n")
            elif self.path == "/":
                self._answer(HTTPStatus.OK, "text/html", page.page())
            elif self.path == "/version":
                self._answer(HTTPStatus.OK, "text/plain", page.version())
            else:
                self._answer(HTTPStatus.NOT_FOUND, "text/plain", "there is only /\n")

        def _answer(self, status: HTTPStatus, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Security-Policy", _POLICY)
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            try:
                self.wfile.write(body)
            except ConnectionError:
                # The browser has left the page meanwhile.
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            """Logs nothing, as there is a request each second."""

    try:
        return ThreadingHTTPServer((_HOST, port), Handler)
    except (OSError, OverflowError) as error:
        raise ResourceError(
            f"port {port} cannot be served: {error}", hint="give another port, or none for one that is free"
        ) from None


def serve(page: LivePage, port: int, *, opens: bool, tell: Callable[[str], None]) -> None:
    """Serve a page until Ctrl-C. opens: whether a browser shows it. tell: is given the address.

    Raises ResourceError where the port cannot be used.
    """
    import webbrowser

    with server_of(page, port) as server:
        address = f"http://{_HOST}:{server.server_port}/"
        tell(address)
        if opens:
            webbrowser.open(address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            # The usual end of a server.
            return


def _state_of(file: Path) -> str:
    try:
        state = file.stat()
    except OSError:
        return "missing"
    return f"{state.st_mtime_ns}-{state.st_size}"


def _page_of_error(error: Exception) -> str:
    text = html.escape(str(error))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>xlakit view</title>'
        "<style>:root { color-scheme: light dark } pre { white-space: pre-wrap }</style></head>"
        f'<body><h1>The program cannot be shown</h1><pre role="alert">{text}</pre></body></html>'
    )
