"""The flags of a measurement: doubts, notes, and what users can read of them."""

import re
from pathlib import Path

from gpubench_plugin.core.quality_flags import (
    CONTENDED,
    DOUBTFUL_FLAGS,
    EXPLANATIONS,
    FEWER_THREADS,
    MEANINGS,
    doubtful_flags,
    explanation,
    other_flags,
)

_DOCS = Path(__file__).parents[3] / "docs/reference/flags.md"


def test_doubts_are_told_apart_from_notes() -> None:
    """Of a measurement's flags those that put its number in doubt come in one fixed order."""
    assert doubtful_flags(("outliers", "drifting", "sampled", "contended")) == (
        "contended",
        "drifting",
    )
    assert doubtful_flags(("outliers", "descheduled")) == ()
    assert other_flags(("outliers", "contended", "sampled", "outliers")) == ("outliers", "sampled")


def test_docs_list_every_flag_in_its_table() -> None:
    """The reference has one row for each flag, doubts and notes in tables of their own."""
    doubts_text, _, notes_text = _DOCS.read_text("utf-8").partition("## Notes")
    row = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)
    assert sorted(row.findall(doubts_text)) == sorted(DOUBTFUL_FLAGS)
    assert sorted(row.findall(notes_text)) == sorted(MEANINGS.keys() - set(DOUBTFUL_FLAGS))


def test_every_flag_says_in_a_line_what_it_means() -> None:
    """For who reads an explanation, without the reference at hand."""
    assert max(map(len, MEANINGS.values())) <= 88


def test_every_doubt_is_explained_as_in_the_docs() -> None:
    """The terminal says in a line what a doubt means; the reference has the same sentences."""
    assert tuple(EXPLANATIONS) == DOUBTFUL_FLAGS
    row = re.compile(r"^\| `(\w+)` \| .* \| ([^|]+) \|$", re.MULTILINE)
    doubts_text = _DOCS.read_text("utf-8").partition("## Notes")[0]
    assert dict(row.findall(doubts_text)) == EXPLANATIONS
    assert f"`{FEWER_THREADS}`" in doubts_text
    texts = [*EXPLANATIONS.items(), (CONTENDED, FEWER_THREADS)]
    lines = [f"≈ {flag}: {text}" for flag, text in texts]
    assert max(map(len, lines)) <= 80


def test_several_threads_that_waited_are_told_to_be_fewer() -> None:
    """With the command first; a single one is told to close what used the CPU.

    So are those for whom the command was given.
    """
    flags = ("contended", "oversubscribed")
    assert explanation("contended", flags) == FEWER_THREADS
    settings = {"distributed.threads": 1}
    assert explanation("contended", flags, settings) == EXPLANATIONS[CONTENDED]
    assert FEWER_THREADS.startswith("pytest --distributed.threads=1")
    assert explanation("contended", ("contended",)) == EXPLANATIONS[CONTENDED]
