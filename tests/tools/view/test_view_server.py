"""The page of a file that changes, from a server."""

import threading
import urllib.error
import urllib.request

import pytest
from tools.view.programs import STEP

from xlakit.errors import ResourceError
from xlakit.formats.detect import load
from xlakit.tools import cli
from xlakit.tools.view.server import LivePage, server_of
from xlakit.tools.view.stages import view_module


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "step.hlo"
    path.write_text(STEP)
    return path


@pytest.fixture
def address(program):
    made = lambda: view_module(load(program.read_bytes(), str(program)), passes=False).html  # noqa: E731
    with server_of(LivePage([str(program)], made), 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def get(address, **headers):
    with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=20) as answer:
        return answer.read().decode()


def test_the_page_is_that_of_the_file(address, program):
    page, version = get(f"{address}/"), get(f"{address}/version")
    assert "tanh" in page
    assert version in page
    assert get(f"{address}/") == page
    program.write_text(STEP.replace("tanh", "exponential"))
    assert get(f"{address}/version") != version
    changed = get(f"{address}/")
    assert "exponential" in changed
    assert "tanh" not in changed


def test_an_error_is_shown_until_the_file_is_right(address, program):
    program.write_text("HloModule m\n\nENTRY e { x = <b> }")
    page = get(f"{address}/")
    assert 'role="alert"' in page
    assert "<b>" not in page
    assert "setInterval" in page
    program.unlink()
    assert "cannot be shown" in get(f"{address}/")
    program.write_text(STEP)
    assert "tanh" in get(f"{address}/")


def test_nothing_else_is_served(address):
    for path, headers, status in [("/etc", {}, 404), ("/", {"Host": "evil.example:80"}, 403)]:
        with pytest.raises(urllib.error.HTTPError) as error:
            get(f"{address}{path}", **headers)
        assert error.value.code == status


def test_a_port_that_is_taken(address):
    page = LivePage([], lambda: "")
    with pytest.raises(ResourceError, match="cannot be served"):
        server_of(page, int(address.rpartition(":")[2]))
    with pytest.raises(ResourceError, match="cannot be served"):
        server_of(page, 70_000)


def test_the_file_may_follow_the_option(program, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(
        "xlakit.tools.view.server.serve", lambda page, port, opens, tell: asked.append((page.page(), port, opens))
    )
    assert cli.main(["view", "--serve", str(program), "--no-browser", "--no-passes"]) == 0
    assert cli.main(["view", "--serve", "--port", "8123", str(program), "--no-passes"]) == 0
    assert [(port, opens) for _, port, opens in asked] == [(0, False), (8123, True)]
    assert all("tanh" in page for page, _, _ in asked)
