"""What a person asks about: the tools of a session, and what was spent."""

from __future__ import annotations

from functools import partial

from dshd import wire
from dshd.control.calls import Call, Json
from dshd.log.writer import hop
from dshd.session.disk.spent import spent
from dshd.session.shown.usage import Sums, active, local_day
from dshd.tools.mcp.servers import wildcard
from dshd.tools.outlook import Outlook, outlook


def _meant(call: Call) -> bool:
    """Whether the request names a session."""
    return call.params.session is not None or call.params.cwd is not None


async def tools(call: Call) -> Json:
    services = call.registry.services
    view = (await call.session()).show() if _meant(call) else {}
    config, registry = services.config(), services.servers.known(services.tools, view.get("id"))
    mode = view.get("mode") or config.sessions.mode
    net = bool(view["net"] if view.get("net") is not None else config.sessions.net)
    rows = []
    for name in sorted({*registry.names, *registry.off}):
        tool = registry.get(name)
        found = outlook(name, mode, net, config.tools.sandbox, services.tool_rules)
        if name in registry.off:
            found = Outlook("deny", f"off: {registry.off[name]}")
        rows.append(
            {
                "type": "tool",
                "name": name,
                "does": tool.description.split("\n")[0],
                "read_only": tool.read_only is True,
                "action": found.action,
                "by": found.by,
                "unless": list(found.unless),
            }
        )
    rows += [_server(name, how) for name, how in services.servers.states(view.get("id")).items()]
    return {"type": "tools", "session": view.get("id"), "mode": mode, "tools": rows}


def _server(name: str, how: str) -> Json:
    """A server whose tools aren't there."""
    return {
        "type": "tool", "name": wildcard(name), "does": f"the tools of the server {name}", "read_only": False,
        "action": "deny", "by": how, "unless": [],
    }  # fmt: skip


async def usage(call: Call) -> Json:
    """From the logs, one at a time: however many there are, others are answered meanwhile."""
    params: wire.UsageShowParams = call.params
    registry, store = call.registry, call.registry.store
    views = await registry.views(True)
    if _meant(call):
        id = await call.id()
        views = [view for view in views if view["id"] == id]
    sums = Sums(params.by, local_day)
    for view in active(views, params.since):
        path = store.log_path(view["id"])
        sums.add(view, await hop(store.disk, partial(spent, store.disk, path, params.since)))
    return {"type": "usages", "rows": sums.rows(), "total": sums.total()}
