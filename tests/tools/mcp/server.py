"""A server of tools for the tests, as anybody would write one; its argument says what else it does."""

from __future__ import annotations

import os
import sys
import time

if __name__ == "__main__":
    how = sys.argv[1] if len(sys.argv) > 1 else ""
    if how == "broken":
        sys.exit("it has no licence")
    if how == "silent":
        time.sleep(60)

    from mcp.server.mcpserver import Image, MCPServer
    from mcp.types import ToolAnnotations

    server = MCPServer("tests")
    print("a word that is no message", flush=True)

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool()
    def where() -> str:
        """Where it runs, and with what."""
        return f"{os.getcwd()} {os.environ.get('COLOUR')}"

    @server.tool()
    def put(path: str) -> str:
        """Write a file."""
        with open(path, "w") as file:
            file.write("x")
        return "written"

    @server.tool()
    def picture() -> Image:
        """A picture."""
        return Image(data=b"\x89PNG....", format="png")

    @server.tool()
    def lots() -> str:
        """Much."""
        return "x" * 200_000

    @server.tool()
    def fail() -> str:
        """Go wrong."""
        raise ValueError("it went wrong")

    @server.tool()
    def die() -> str:
        """End in the middle."""
        print("out of memory", file=sys.stderr, flush=True)
        os._exit(3)

    @server.tool()
    def hang() -> str:
        """Never answer."""
        time.sleep(60)
        return ""

    server.run()
