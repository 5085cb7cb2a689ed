"""Things that happen in the same instant, again and again: none may be lost, doubled or left waiting."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from tests.amount import LONG
from tests.e2e.harness import TIMEOUT, Home, eventually, texts
from tests.e2e.model import Model, bash, script

TIMES = 100 if LONG else 40


def test_a_send_in_the_instant_a_turn_ends_is_answered(home: Home, model: Model) -> None:
    home.start()
    session = home.ok("new")
    with home.rpc() as watcher, home.rpc() as sender, home.rpc() as waiter:
        watcher.call("log.follow", session=session, turns=0)
        events = (e["params"]["event"] for e in watcher.events() if e["method"] == "log.event")

        for n in range(TIMES):
            first = sender.call("session.send", session=session, verb="followup", text=f"a{n}")
            next(e for e in events if e["data"].get("id") == first["message"])  # it enters its turn
            # The end of that: its answer, then its last step's end, then its own.
            last = ("assistant/message", "step/end", "turn/end")[n % 3]
            next(e for e in events if e["type"] == last)
            verb = ("followup", "steer")[n % 2]
            sent = sender.call("session.send", session=session, verb=verb, text=f"b{n}")
            result = waiter.result(sent["message"])
            assert (result["outcome"], result["text"]) == ("completed", f"echo: b{n}")
    said = Counter(texts(home.said(session)))
    assert said == Counter([f"{which}{n}" for which in "ab" for n in range(TIMES)])


def test_64_senders_at_once_are_64_messages_each_answered_once(home: Home, model: Model) -> None:
    home.start()
    session = home.ok("new", "--name", "busy")
    with ThreadPoolExecutor(64) as pool:
        ids = list(pool.map(lambda n: home.ok("followup", "-s", "busy", f"m{n}"), range(64)))
    assert len(set(ids)) == 64
    home.ok("wait", "-s", "busy", timeout=60)
    order = texts(home.said(session))
    assert sorted(order) == sorted(f"m{n}" for n in range(64))
    assert len(home.log(session, "turn/start")) == 64
    assert [e["data"]["id"] for e in home.said(session)] == inserted(home, session)


def inserted(home: Home, session: str) -> list[str]:
    """The ids of the messages that were sent, in the order of the log."""
    splices = [e["data"] for e in home.log(session, "inbox/spliced")]
    return [m["id"] for s in splices if s["cause"] == "send" for op in s["ops"] for m in op["insert"]]


ROUNDS = 50 if LONG else 2
WRITERS = 30


def test_what_30_programs_were_told_is_kept_is_there_once_also_if_the_daemon_is_killed(
    home: Home, model: Model
) -> None:
    """In every other round it is killed while they write; one of them starts another."""
    with (home.path / "config.toml").open("a") as config:
        config.write(f"[inbox]\nmax_pending = {ROUNDS * WRITERS}\n")
    home.start()
    session = home.ok("new", "--name", "busy")
    kept: Counter[str] = Counter()
    tried = set()
    for n in range(ROUNDS):
        texts_ = [f"round {n}, writer {w}" for w in range(WRITERS)]
        writers = [home.popen("followup", "-s", "busy", "--no-wake", text) for text in texts_]
        if n % 2:
            killed_in_the_middle(home, session)
        for text, writer in zip(texts_, writers, strict=True):
            writer.communicate(timeout=TIMEOUT * 3)
            assert writer.returncode == 0 or n % 2
            kept[text] += writer.returncode == 0
        tried.update(texts_)
    said = Counter(written(home, session))
    assert set(said.values()) == {1}
    assert set(said) <= tried
    assert set(+kept) <= set(said)
    home.ok("fsck")


def killed_in_the_middle(home: Home, session: str) -> None:
    enough = len(written(home, session)) + WRITERS // 4
    eventually(lambda: len(written(home, session)) > enough)
    with home.rpc() as rpc:
        os.kill(rpc.hello["pid"], signal.SIGKILL)


def written(home: Home, session: str) -> list[str]:
    """The texts of what stands in the log as sent."""
    splices = [e["data"] for e in home.log(session, "inbox/spliced")]
    sent = [m for s in splices if s["cause"] == "send" for op in s["ops"] for m in op["insert"]]
    return [m["content"][0]["text"] for m in sent]


def test_64_senders_with_one_key_are_one_message(home: Home, model: Model) -> None:
    home.start()
    session = home.ok("new", "--name", "keyed")

    def send(n: int) -> dict[str, object]:
        with home.rpc() as rpc:
            receipt: dict[str, object] = rpc.call(
                "session.send", session=session, verb="followup", key="k", text="once"
            )
        return receipt

    with ThreadPoolExecutor(64) as pool:
        receipts = list(pool.map(send, range(64)))
    assert len({r["message"] for r in receipts}) == 1
    assert Counter(r["duplicate"] for r in receipts) == {True: 63, False: 1}
    home.ok("wait", "-s", "keyed")
    assert texts(home.said()) == ["once"]


def test_a_used_key_refuses_another_text(home: Home, model: Model) -> None:
    home.start()
    home.ok("followup", "--key", "k", "--wait", "one")
    (error,) = home.json("followup", "--key", "k", "two", exit=5)
    assert error["code"] == "CONFLICT"


def test_abort_and_send_in_one_breath_follow_the_order_of_the_log(home: Home, model: Model) -> None:
    home.start()
    session = home.ok("new")
    with home.rpc() as aborter, home.rpc() as sender, home.rpc() as waiter:
        for n in range(TIMES):
            slow = bash("sleep 60") if n % 10 == 0 else {"text": "late", "gate": f"g{n}"}
            asked = len(model.requests)
            work = script(slow, say=f"w{n}")
            running = sender.call("session.send", session=session, verb="followup", text=work)
            if n % 10 == 0:
                home.wait_event("tool/call", n // 10 + 1, session)
            else:
                model.wait_requests(asked + 1)
            message = {"verb": "followup", "text": script({"text": f"m{n}"})}
            breath = [(aborter, "session.abort", {}), (sender, "session.send", message)]
            posted = {
                client: client.post(method, session=session, **params)
                for client, method, params in breath[:: n % 2 or -1]
            }
            sent = sender.take(posted[sender])
            aborter.take(posted[aborter])
            aborted_at = home.log(session, "abort/requested")[n]["seq"]
            if sent["seq"] < aborted_at:
                assert home.json("wait", sent["message"], exit=18)
                waiter.call("session.wake", session=session)
            result = waiter.result(sent["message"])
            assert (result["outcome"], result["text"]) == ("completed", f"m{n}"), n
            assert waiter.result(running["message"])["outcome"] == "aborted"
    ends = [e["data"]["reason"] for e in home.log(session, "turn/end")]
    assert ends == ["aborted", "completed"] * TIMES
    assert home.log(session, "turn/start")[-1]["data"]["turn"] == 2 * TIMES


def test_a_client_killed_in_the_middle_of_a_send_has_sent_all_of_it_or_nothing(
    home: Home, model: Model
) -> None:
    home.start()
    session = home.ok("new", "--name", "torn")
    for n in range(20):
        client = home.popen("followup", "-s", "torn", "--no-wake", f"m{n}")
        try:
            client.communicate(timeout=0.01 * n)
        except subprocess.TimeoutExpired:
            client.kill()
            client.communicate()
    ids = inserted(home, session)
    assert len(set(ids)) == len(ids) <= 20
    assert home.ctl("fsck").returncode == 0
