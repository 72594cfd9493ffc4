"""A client of the language server: messages of JSON over the pipes of `xlakit lsp`."""

import json
import queue
import subprocess
import sys
import threading

URI = "file:///programs/test.hlo"


class Client:
    """One server process; answers and notifications are told apart by their id."""

    def __init__(self, encodings=None, errors=None):
        """errors: the file that gets what the server writes to its standard error."""
        command = [sys.executable, "-m", "xlakit", "lsp", "--stdio"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        self.answers, self.diagnostics = {}, queue.Queue()
        # The version of the text that the last diagnostics are about.
        self.checked_version = None
        self.arrived = threading.Condition()
        self.number = self.version = 0
        self.ended = False
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        general = {} if encodings is None else {"general": {"positionEncodings": encodings}}
        params = {"processId": None, "rootUri": None, "capabilities": general}
        self.capabilities = self.request("initialize", params)["capabilities"]
        self.notify("initialized", {})

    def _read(self):
        out = self.process.stdout
        while header := out.readline():
            length = 0
            while header.strip():
                if header.lower().startswith(b"content-length:"):
                    length = int(header.split(b":")[1])
                header = out.readline()
            message = json.loads(out.read(length))
            if message.get("method") == "textDocument/publishDiagnostics":
                self.checked_version = message["params"].get("version")
                self.diagnostics.put(message["params"]["diagnostics"])
            elif "id" in message and "method" not in message:
                with self.arrived:
                    self.answers[message["id"]] = message
                    self.arrived.notify_all()
        with self.arrived:
            self.ended = True
            self.arrived.notify_all()

    def _send(self, message):
        data = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(data) + data)
        self.process.stdin.flush()

    def notify(self, method, params):
        self._send({"method": method, "params": params})

    def ask(self, method, params):
        """The whole message that answers a request, an error included."""
        self.number += 1
        number = self.number
        self._send({"id": number, "method": method, "params": params})
        with self.arrived:
            assert self.arrived.wait_for(lambda: number in self.answers or self.ended, timeout=120), (
                f"no answer to {method}"
            )
            assert number in self.answers, f"the server ended before it answered {method}"
            return self.answers.pop(number)

    def request(self, method, params):
        message = self.ask(method, params)
        assert "error" not in message, message
        return message["result"]

    def open(self, text):
        """Open a text; gives its diagnostics."""
        document = {"uri": URI, "languageId": "hlo", "version": 0, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": document})
        return self.diagnostics.get(timeout=60)

    def close(self):
        """Close the text, and forget what was told of it."""
        self.notify("textDocument/didClose", {"textDocument": {"uri": URI}})
        self.ask("textDocument/hover", self.params(0, 0))
        while not self.diagnostics.empty():
            self.diagnostics.get()

    def change(self, start, end, text):
        """Replace what is between two positions."""
        self.version += 1
        where = {"start": position(*start), "end": position(*end)}
        document = {"uri": URI, "version": self.version}
        self.notify(
            "textDocument/didChange", {"textDocument": document, "contentChanges": [{"range": where, "text": text}]}
        )

    def at(self, what, line, column, **more):
        """The answer to a request about a position."""
        return self.request(f"textDocument/{what}", self.params(line, column, **more))

    def params(self, line, column, **more):
        return {"textDocument": {"uri": URI}, "position": position(line, column), **more}

    def about(self, what, **more):
        """The answer to a request about the text."""
        return self.request(f"textDocument/{what}", {"textDocument": {"uri": URI}, **more})

    def stop(self):
        """End the server as an editor does; gives its exit status."""
        self.request("shutdown", None)
        self.notify("exit", None)
        status = self.process.wait(60)
        self.process.stdin.close()
        self.reader.join(60)
        self.process.stdout.close()
        return status


def position(line, column):
    return {"line": line, "character": column}


def place(text, mark, offset=0):
    """The line and column (in UTF-16) of the first place of a text where another stands."""
    index = text.index(mark) + offset
    before = text[:index].replace("\r\n", "\n").split("\n")
    return len(before) - 1, len(before[-1].encode("utf-16-le")) // 2


def applied(text, edits):
    """A text of ASCII after edits of the protocol."""
    lines = text.split("\n")
    starts = [sum(len(line) + 1 for line in lines[:n]) for n in range(len(lines) + 1)]
    spans = [
        (
            starts[e["range"]["start"]["line"]] + e["range"]["start"]["character"],
            starts[e["range"]["end"]["line"]] + e["range"]["end"]["character"],
            e["newText"],
        )
        for e in edits
    ]
    for start, end, new in sorted(spans, reverse=True):
        text = text[:start] + new + text[end:]
    return text
