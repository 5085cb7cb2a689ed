"""Keeping what a tool says within bounds: whole code points, head and tail, and a mark for the gap."""

from __future__ import annotations

import attrs

from dshd.tools.tool import Block, ToolOutput, clean

MOST_CHARACTERS = 64_000  # of one result; tools bound themselves tighter, this holds for every other


def bounded(output: ToolOutput, most: int = MOST_CHARACTERS) -> ToolOutput:
    """The output with its text cut to ``most`` characters altogether and without lone surrogates."""
    left = most
    content: list[Block] = []
    for block in output.content:
        if block.get("type") != "text":
            content.append(block)
            continue
        text = middle_cut(clean(str(block["text"])), max(left, 200))
        left -= len(text)
        content.append({**block, "text": text})
    return output if content == output.content else attrs.evolve(output, content=content)


def middle_cut(text: str, most: int) -> str:
    """Head and tail of a text longer than ``most`` characters, with a line that says what is missing."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"
