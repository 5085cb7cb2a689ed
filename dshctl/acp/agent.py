"""The loop, and what each request of the editor's becomes.

| the editor says            | the daemon is asked                                                           |
|----------------------------|-------------------------------------------------------------------------------|
| session/new                | session.create, in that directory                                             |
| session/load               | session.show, log.read (all of it is told), log.follow                        |
| session/prompt             | session.send: a followup, or, while a turn runs, a steer; session.wait        |
| session/cancel             | session.abort; what of the prompts has not entered is taken out of the queue  |
| session/set_mode           | session.set                                                                   |
| an answer to a permission  | approval.answer                                                               |

A prompt is answered when the turn that it is in has ended and all of that was told. After a lost connection
what was not acknowledged is sent again by its key, what was is waited for again, and the logs go on where
they were.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from typing import Any, Final
from uuid import uuid4

from dshctl import exits, settling
from dshctl.acp import peer, translating
from dshctl.acp.peer import Peer
from dshctl.acp.threads import Prompt, Thread
from dshctl.attaching.link import Link
from dshctl.attaching.screen import Woken
from dshctl.base import Cli
from dshctl.connection import Lost, result_of
from dshd import __version__, errors, wire

Json = dict[str, Any]
PROTOCOL: Final = 1
AGAIN_S: Final = 1.0  # until what could not be taken just now is asked again
_LATER: Final = (errors.Unavailable, errors.Stalled)


class Agent:
    """For one editor, on standard input and output."""

    def __init__(self, cli: Cli, woken: Woken) -> None:
        self._cli = cli
        self._woken = woken
        self._client = cli.client()
        self._link = Link(cli, woken.ring)
        self._editor = Peer(cli.out.out.write)
        self._threads: dict[str, Thread] = {}
        self._approvals: dict[str, Json] = {}
        self._asked: dict[int, Asked] = {}  # {id: what was asked of the daemon}
        self._again: list[tuple[float, Asked]] = []  # what is asked (again) from that moment on
        self._input: int | None = 0

    def run(self) -> int:
        """Until the editor has finished. Raises `TimedOut`."""
        try:
            self._link.begin(self._client)
            self._connected()
            while self._input is not None and not self._cli.out.out.gone:
                self._once()
            return exits.DONE
        finally:
            self._link.end()

    def _once(self) -> None:
        for ready in self._wait():
            if ready == self._woken.fd:
                self._woken.heard()
            elif ready == self._input:
                self._read()
            else:
                self._hear()
        for line in self._link.notes():
            self._cli.out.say(line)
        if self._link.found() is not None:
            self._connected()
        self._ask_again()

    def _wait(self) -> list[int]:
        reads = [fd for fd in (self._woken.fd, self._input, self._link.fileno()) if fd is not None]
        due = min((at for at, _ in self._again), default=None)
        soon = None if due is None or self._link.connection is None else max(0.0, due - time.monotonic())
        ready: list[int] = select.select(reads, [], [], self._client.deadline.left(soon))[0]
        return ready

    # The daemon.

    def _ask(
        self, params: wire.Params, then: Then, failed: Failed | None = None, repeat: bool = False
    ) -> None:
        """``repeat``: ask again after a lost connection, or when it could not be taken."""
        self._post(Asked(params, then, failed, repeat))

    def _post(self, asked: Asked) -> None:
        if self._link.connection is None:
            self._again.append((0.0, asked))
            return
        try:
            self._asked[self._link.send(asked.params)] = asked
        except Lost:
            self._again.append((0.0, asked))
            self._lost()

    def _ask_again(self) -> None:
        if self._link.connection is None:
            return
        now = time.monotonic()
        due = [asked for at, asked in self._again if at <= now]
        self._again = [(at, asked) for at, asked in self._again if at > now]
        for asked in due:
            self._post(asked)

    def _connected(self) -> None:
        """A connection that is new: follow what is followed, and be told what waits for an answer."""
        self._ask(wire.ApprovalFollowParams(), lambda got: self._waiting(got["approvals"]))
        for thread in self._threads.values():
            self._follow(thread)

    def _follow(self, thread: Thread) -> None:
        params = wire.LogFollowParams(session=thread.id, after=thread.place.position)

        def failed(error: errors.DshError) -> None:
            if "reset_to" in error.data:
                self._reset(thread, int(error.data["reset_to"]))
                self._follow(thread)

        self._ask(params, lambda got: None, failed)

    def _lost(self) -> None:
        """Requests that may be repeated are; who asked for another one is told that it is not known."""
        self._link.lost()
        asked, self._asked = list(self._asked.values()), {}
        for one in asked:
            if one.repeat:
                self._again.append((0.0, one))
            elif one.failed is not None and not isinstance(one.params, wire.LogFollowParams):
                one.failed(
                    errors.Unreachable(
                        "the connection to the daemon was lost; it is not known if this was done"
                    )
                )

    def _hear(self) -> None:
        if self._link.connection is None:
            return
        try:
            for got in self._link.come():
                if "method" in got:
                    self._notified(str(got["method"]), got.get("params") or {})
                else:
                    self._answered(got)
        except Lost:
            self._lost()

    def _answered(self, got: Json) -> None:
        asked = self._asked.pop(int(got.get("id") or 0), None)
        if asked is None:
            return
        try:
            result = result_of(got)
        except errors.DshError as error:
            if asked.repeat and isinstance(error, _LATER):
                self._again.append((time.monotonic() + AGAIN_S, asked))
            elif asked.failed is not None:
                asked.failed(error)
            return
        asked.then(result)

    def _notified(self, method: str, params: Json) -> None:
        if method == "approval.asked":
            self._permit(params)
        elif method == "approval.answered":
            self._approvals.pop(str(params["id"]), None)
        elif (thread := self._threads.get(str(params.get("session")))) is None:
            return
        elif method == "log.event":
            self._event(thread, params["event"])
        elif method == "log.reset":
            self._reset(thread, int(params["to"]))

    def _event(self, thread: Thread, event: Json) -> None:
        if not thread.place.saw(event):
            return
        for update in thread.updates.feed(event):
            self._editor.tell("session/update", {"sessionId": thread.id, "update": update})
        if event.get("type") == "turn/end":
            self._settle(thread)

    def _reset(self, thread: Thread, seq: int) -> None:
        thread.place.back_to(seq)
        thread.updates.reset()

    # Approvals.

    def _waiting(self, approvals: list[Json]) -> None:
        self._approvals = {}
        for approval in approvals:
            self._permit(approval)

    def _permit(self, approval: Json) -> None:
        """Ask the editor, once, if it is about a session of its, or a subagent of one."""
        id = str(approval["id"])
        self._approvals[id] = approval
        about = (approval.get("session"), *(one["id"] for one in approval.get("works_for") or ()))
        thread = next((self._threads[one] for one in map(str, about) if one in self._threads), None)
        if thread is None or id in thread.asked:
            return
        thread.asked.add(id)

        def chosen(result: Json | None) -> None:
            params = translating.answered(id, result)
            if params is not None:  # somebody else may have been quicker
                self._ask(params, lambda got: None)

        params = translating.permission(thread.id, thread.updates.call(approval, thread.id))
        self._editor.ask("session/request_permission", params, chosen)

    # The editor.

    def _read(self) -> None:
        assert self._input is not None
        data = os.read(self._input, 65536)
        if not data:
            self._input = None
        for id, method, params in self._editor.feed(data):
            handler = _METHODS.get(method)
            try:
                if handler is not None:
                    handler(self, id, params)
                elif id is not None:
                    self._editor.fail(id, peer.METHOD_NOT_FOUND, f"no method {method}")
            except errors.DshError as error:
                self._refuse(id, error)

    def _refuse(self, id: Any, error: errors.DshError) -> None:
        if id is not None:
            hint = f"\n{error.hint}" if error.hint else ""
            self._editor.fail(id, error.rpc_code, f"{error.message}{hint}", {"code": error.code})

    def _initialize(self, id: Any, params: Json) -> None:
        self._editor.answer(id, {
            "protocolVersion": PROTOCOL,
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": False, "audio": False, "embeddedContext": True},
            },
            "agentInfo": {"name": "dshd", "version": __version__},
            "authMethods": [],
        })  # fmt: skip

    def _new(self, id: Any, params: Json) -> None:
        self._alone(params)
        create = settling.create_params(self._cli, {"directory": _directory(params)})
        # A person sits at an editor: they can be asked, and may try it without a model.
        create = create.replace(terminal=True, key=f"acp:{uuid4().hex}")

        def made(got: Json) -> None:
            thread = self._known(Thread(got["session"]))
            self._editor.answer(id, {"sessionId": thread.id, "modes": translating.modes(thread.mode)})
            self._follow(thread)

        self._ask(create, made, lambda error: self._refuse(id, error), repeat=True)

    def _known(self, thread: Thread) -> Thread:
        self._threads[thread.id] = thread
        return thread

    def _load(self, id: Any, params: Json) -> None:
        """All of the past is told before the answer; what happens from there on behind it."""

        def failed(error: errors.DshError) -> None:
            self._refuse(id, error)

        def shown(session: Json) -> None:
            thread = self._known(Thread(session))
            thread.updates.replays = True

            def told(got: Json) -> None:
                thread.updates.replays = False
                self._editor.answer(id, {"modes": translating.modes(thread.mode)})
                self._follow(thread)
                self._waiting(list(self._approvals.values()))

            self._ask(wire.LogReadParams(session=thread.id), told, failed)

        def show(got: Json) -> None:
            self._ask(wire.ShowParams(session=_session(params)), shown, failed, repeat=True)

        self._alone(params)
        # What is followed already would come between the lines of the past.
        self._ask(wire.LogUnfollowParams(session=_session(params)), show, failed, repeat=True)

    def _alone(self, params: Json) -> None:
        if params.get("mcpServers"):
            self._cli.out.say(
                "dshctl: MCP servers of the editor are not used; name them in the config: man dshd-config"
            )

    def _prompt(self, id: Any, params: Json) -> None:
        thread = self._thread(params)
        prompt = Prompt(id, translating.content(params.get("prompt")))
        thread.prompts.append(prompt)

        def failed(error: errors.DshError) -> None:
            if prompt in thread.prompts:
                thread.prompts.remove(prompt)
                self._refuse(id, error)

        def sent(receipt: Json) -> None:
            prompt.message = str(receipt["message"])
            if prompt in thread.prompts:
                self._ask(prompt.wait(thread.id), ended, failed, repeat=True)

        def ended(got: Json) -> None:
            (prompt.result,) = got["results"]
            self._settle(thread)

        self._ask(prompt.send(thread.id), sent, failed, repeat=True)

    def _settle(self, thread: Thread) -> None:
        """Answer the prompts whose turns have been told to their ends."""
        for prompt in thread.ended():
            assert prompt.result is not None
            try:
                why = "cancelled" if prompt.cancelled else translating.stop(prompt.result)
                self._editor.answer(prompt.request, {"stopReason": why})
            except errors.DshError as error:
                self._refuse(prompt.request, error)

    def _cancel(self, id: Any, params: Json) -> None:
        thread = self._thread(params)

        def stopped(got: Json) -> None:
            """Prompts that have not entered a turn are not wanted any more, either; where one has, that is
            refused. Either way its end comes, and answers it."""
            for prompt in thread.prompts:
                if prompt.result is None and prompt.message is not None:
                    self._ask(wire.QueueRmParams(messages=(prompt.message,)), lambda got: None)

        for prompt in thread.prompts:
            prompt.cancelled = True
        self._ask(wire.AbortParams(session=thread.id), stopped, repeat=True)

    def _set_mode(self, id: Any, params: Json) -> None:
        thread = self._thread(params)
        values = {"mode": params.get("modeId")}
        self._ask(wire.SetParams(session=thread.id, values=values), lambda got: self._editor.answer(id, {}),
                  lambda error: self._refuse(id, error))  # fmt: skip

    def _thread(self, params: Json) -> Thread:
        thread = self._threads.get(_session(params))
        if thread is None:
            raise errors.NotFound("this session is not open here: session/new or session/load first")
        return thread


Then = Callable[[Json], None]
Failed = Callable[[errors.DshError], None]


class Asked:
    """A request to the daemon that is not answered yet."""

    def __init__(self, params: wire.Params, then: Then, failed: Failed | None, repeat: bool) -> None:
        self.params, self.then, self.failed, self.repeat = params, then, failed, repeat


def _session(params: Json) -> str:
    found = params.get("sessionId")
    if not isinstance(found, str) or not found:
        raise errors.Invalid("expected a string @ $.sessionId")
    return found


def _directory(params: Json) -> str:
    found = params.get("cwd")
    if not isinstance(found, str) or not os.path.isabs(found):
        raise errors.Invalid("expected an absolute path @ $.cwd")
    return found


_METHODS: Final[dict[str, Callable[[Agent, Any, Json], None]]] = {
    "initialize": Agent._initialize,
    "session/new": Agent._new,
    "session/load": Agent._load,
    "session/prompt": Agent._prompt,
    "session/cancel": Agent._cancel,
    "session/set_mode": Agent._set_mode,
}
