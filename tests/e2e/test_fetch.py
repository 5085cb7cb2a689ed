"""`fetch`, from outside: off, turned on while the daemon runs, asked about, answered, and what it gave."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.e2e.harness import Home
from tests.e2e.model import Json, Model, script

RULE = '[tools]\nfetch = true\n[[rules]]\naction = "ask"\ntool = "fetch"\nhost = "127.0.0.*"\n'


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        data = b"<title>Here</title><p>the words"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def page() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def fetch(url: str) -> str:
    return script({"tools": [{"name": "fetch", "arguments": {"url": url}}]})


def offered(model: Model) -> set[str]:
    return {tool["function"]["name"] for tool in model.requests[-1]["tools"]}


def last_result(home: Home) -> Json:
    data: Json = home.log(type="tool/result")[-1]["data"]
    return data


def row(home: Home) -> Json:
    (found,) = [line for line in home.json("tools", "-s", "web", exit=0) if line.get("name") == "fetch"]
    return found


def test_fetch_is_off_then_on_then_asked_about_and_answered(home: Home, model: Model, page: str) -> None:
    home.start()
    home.ok("run", "--ask", "wait", "--name", "web", fetch(page))
    assert "fetch" not in offered(model)
    assert "fetch is off here: a person can turn it on" in last_result(home)["content"][0]["text"]
    assert (row(home)["action"], "off: a person can" in row(home)["by"]) == ("deny", True)

    with (home.path / "config.toml").open("a") as config:
        config.write(RULE)
    home.ok("daemon", "reload")
    assert row(home)["by"] == "mode workspace: no network"
    home.ok("followup", "-s", "web", fetch(page), "--wait")
    assert "fetch" in offered(model)
    told = "network is off here. A person can change that: dshctl set net=on -s web"
    assert told in last_result(home)["content"][0]["text"]

    home.ok("set", "web", "net=on")
    assert row(home)["unless"] == ['rule 1: ask host "127.0.0.*"']
    assert home.ctl("followup", "-s", "web", fetch(page), "--wait").returncode == 16
    assert f"url: {page}" in home.ok("approvals")
    home.ok("allow", "a1")
    home.ok("wait", "-s", "web")
    result = last_result(home)
    assert result["content"][0]["text"].startswith("Here\n\nthe words\n[200 OK, text/html, 31 bytes")
    assert result["summary"] == "200, 31 bytes"
