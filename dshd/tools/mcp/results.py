"""What a server answered as an output for the model: texts as they are, what isn't text marked. Sans-IO."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dshd.tools.output import middle_cut
from dshd.tools.tool import ToolOutput, text_output

MOST = 40_000  # characters
MANY = 200  # blocks


def output(result: Mapping[str, Any]) -> ToolOutput:
    """Of a result of ``tools/call`` as JSON."""
    content = result.get("content")
    blocks = content if isinstance(content, list) else []
    texts = [_text(block) for block in blocks[:MANY]]
    if len(blocks) > MANY:
        texts.append(f"[{len(blocks) - MANY} more blocks left out]")
    structured = result.get("structuredContent")
    if not texts and structured is not None:
        texts.append(json.dumps(structured, ensure_ascii=False, indent=1, default=str))
    bad = result.get("isError") is True
    text = middle_cut("\n".join(texts), MOST)
    return text_output(text or "(no output)", is_error=bad, error="TOOL_FAILED" if bad else None)


def _text(block: Any) -> str:
    if not isinstance(block, Mapping):
        return "[something that is no block]"
    kind = block.get("type")
    if kind == "text":
        return str(block.get("text", ""))
    if kind in ("image", "audio"):
        size = len(str(block.get("data", "")).rstrip("=")) * 3 // 4
        return f"[{kind}: {block.get('mimeType', 'of no said type')}, {size:,} bytes, not shown]"
    if kind == "resource_link":
        return f"[{block.get('name', 'a resource')}: {block.get('uri', '')}]"
    if kind == "resource" and isinstance(resource := block.get("resource"), Mapping):
        inside = resource.get("text")
        return str(inside) if inside is not None else f"[{resource.get('uri', 'a resource')}: not text]"
    return f"[{str(kind)[:40]}: not shown]"
