from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshd.prompt.assembly import PromptContext, Rule, Section, assemble, truncate
from dshd.prompt.tokens import BYTES_PER_TOKEN, estimate

FULL = PromptContext(
    persona="You are terse.",
    tools=[("write", "to make files"), ("read", "to look"), ("silent", "")],
    instructions=[("/home/you/.config/dshd/AGENTS.md", "speak plainly"), ("/src/AGENTS.md", "use tabs")],
    memory="the person likes tea",
    window=65_536,
)


def test_sections_stand_in_their_order_static_parts_first() -> None:
    text = assemble(FULL).text
    places = [
        text.index(part)
        for part in ("You are an agent", "terse", "# Tools", "speak plainly", "use tabs", "likes tea")
    ]
    assert places == sorted(places)


def test_a_prompt_is_the_same_bytes_from_call_to_call_and_from_process_to_process() -> None:
    program = (
        "from dshd.prompt.assembly import assemble, PromptContext\n"
        "print(assemble(PromptContext(tools=[('b', 'x'), ('a', 'y')], instructions=[('l', 't')])).text)"
    )
    texts = set()
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=60,
        )
        texts.add(done.stdout)
    assert len(texts) == 1
    assert len({assemble(FULL).text for _ in range(5)}) == 1


def test_tools_are_listed_by_name_in_whatever_order_they_come() -> None:
    tools = list(FULL.tools)
    one = assemble(PromptContext(tools=tools)).text
    other = assemble(PromptContext(tools=tools[::-1])).text
    assert one == other
    assert "- read: to look\n- write: to make files" in one
    assert "silent" not in one


def test_sections_without_text_leave_no_trace() -> None:
    prompt = assemble(PromptContext(persona="  \n "))
    assert [row.section for row in prompt.report] == ["identity"]
    assert "\n\n\n" not in prompt.text
    assert assemble(PromptContext(identity="")).text == ""


def test_the_report_tells_what_each_section_takes_and_what_was_cut() -> None:
    prompt = assemble(PromptContext(memory="m" * 100_000, window=65_536))
    rows = {row.section: row for row in prompt.report}
    assert rows["identity"].rule == "whole"
    assert rows["memory"].rule == "tail"
    assert rows["memory"].was > 20_000
    assert rows["memory"].tokens <= 4_000


def test_a_small_window_keeps_the_most_important_sections_and_says_what_is_gone() -> None:
    prompt = assemble(
        PromptContext(
            instructions=[("broad", "b" * 4000), ("near", "n" * 4000)], memory="m" * 4000, window=4 * 1300
        )
    )
    rows = {row.section: row for row in prompt.report}
    assert rows["identity"].rule == "whole"
    assert rows["near"].rule == "whole"
    assert rows["broad"].rule == "head"
    assert rows["memory"].rule == "dropped"
    assert prompt.text.endswith("[left out for want of room: memory]")


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "c", "d"]), st.text(max_size=3000)), unique_by=lambda x: x[0]
    ),
    st.integers(500, 20_000),
)
def test_whatever_the_sections_the_prompt_fits_its_share(found: list[tuple[str, str]], window: int) -> None:
    prompt = assemble(PromptContext(instructions=found, memory="m" * 5000, window=window))
    slack = 60 + 10 * len(prompt.report)  # blank lines between, and the line on what is left out
    assert prompt.tokens <= window // 4 + slack
    prompt.text.encode()


def test_two_sections_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two prompt sections"):
        assemble(PromptContext(extra=[Section("identity", "x", 1, 1)]))


def test_an_extra_section_stands_where_its_order_says() -> None:
    text = assemble(PromptContext(persona="P", memory="M", extra=[Section("mine", "X", 150, 1)])).text
    assert text.index("P") < text.index("X") < text.index("# Memory")


@given(st.text(min_size=1), st.integers(0, 200), st.sampled_from(["head", "tail", "middle", "drop"]))
def test_a_cut_text_is_within_its_budget_whole_code_points_and_marked(
    text: str, tokens: int, rule: Rule
) -> None:
    cut = truncate(text, tokens, rule)
    assert estimate(cut) <= max(tokens, 0)
    if cut != text:
        assert not cut or "left out here" in cut
        assert "\ufffd" not in cut or "\ufffd" in text


@pytest.mark.parametrize(("rule", "kept"), [("head", "A" * 20), ("tail", "Z" * 20), ("middle", "A" * 20)])
def test_what_each_rule_keeps(rule: Rule, kept: str) -> None:
    cut = truncate("A" * 500 + "😀" * 500 + "Z" * 500, 60, rule)
    assert kept in cut
    assert ("Z" * 20 in cut) is (rule != "head")
    assert len(cut.encode()) <= 60 * BYTES_PER_TOKEN


def test_a_cut_in_the_middle_of_an_emoji_leaves_no_half_of_it() -> None:
    for tokens in range(20, 60):
        for rule in ("head", "tail", "middle"):
            cut = truncate("😀" * 500, tokens, rule)
            assert set(cut.partition("\n")[0]) <= {"😀"} or "left out" in cut.partition("\n")[0]
            assert "\ufffd" not in cut
