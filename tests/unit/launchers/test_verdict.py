"""One verdict over all ranks: which outcome outranks which, and what is said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.launchers.outcome import (
    JointVerdict,
    RankOutcome,
    judge,
    judge_plain,
    ranks_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    EndedMaker = Callable[..., RankOutcome]
    ReportMaker = Callable[..., pytest.TestReport]

DIFFER = "the ranks had different outcomes"


@pytest.fixture
def endings(reported: ReportMaker, came_to_end: EndedMaker) -> Callable[..., list[RankOutcome]]:
    """Makes the endings of ranks 0, 1, … from a word each."""
    failed = {
        "failed": ("failed", "ValueError"),
        "oom": ("oom", "no memory"),
        "misconfigured": ("misconfigured", "bad key"),
        "lost": ("crashed", "context lost"),
    }
    skipped = {"skipped": "not me", "unsupported": "too old"}
    others = {"died": "was killed", "stuck": "hung", "absent": "SyntaxError"}

    def made(rank: int, word: str) -> RankOutcome:
        if word in others:
            return RankOutcome(rank=rank, state=word, details=others[word])
        if word in skipped:
            return came_to_end(rank, reported("setup", "skipped", kind=word, reason=skipped[word]))
        words = [part for part in word.split("-then-") if part != "passed"]
        phases = zip(("call", "teardown"), words, strict=False)
        notes = [(when, *failed[part]) for when, part in phases]
        return came_to_end(
            rank, *(reported(when, "failed", kind=kind, reason=why) for when, kind, why in notes)
        )

    return lambda words: [made(rank, word) for rank, word in enumerate(words.split())]


@pytest.mark.parametrize(
    ("words", "outcome", "reason"),
    [
        ("failed died oom stuck", "crashed", "rank 1 was killed"),
        ("died died", "crashed", "rank 0 was killed; rank 1 was killed"),
        ("lost stuck lost failed", "crashed", "ranks 0, 2: context lost"),
        ("oom failed-then-lost", "crashed", "rank 1: context lost"),
        ("lost died", "crashed", "rank 1 was killed; rank 0: context lost"),
        ("absent oom stuck", "oom", "rank 1: no memory"),
        ("passed misconfigured stuck", "misconfigured", "rank 1: bad key"),
        ("misconfigured failed stuck", "failed", "rank 1: ValueError; then rank 2 hung"),
        (
            "misconfigured failed",
            "mismatched_ranks",
            f"{DIFFER}: rank 0 misconfigured (bad key); rank 1 failed (ValueError)",
        ),
        ("passed absent stuck", "mismatched_ranks", "rank 1 did not collect the test: SyntaxError"),
        ("stuck failed stuck", "failed", "rank 1: ValueError; then ranks 0, 2 hung"),
        ("skipped failed stuck", "failed", "rank 1: ValueError; then rank 2 hung"),
        ("passed skipped stuck", "mismatched_ranks", "rank 1 skipped (not me); then rank 2 hung"),
        ("stuck unsupported", "mismatched_ranks", "rank 1 unsupported (too old); then rank 0 hung"),
        ("passed stuck", "hang", "rank 1 hung; rank 0 had passed"),
        ("stuck stuck stuck", "hang", "ranks 0-2 hung"),
        ("stuck", "hang", "the process hung"),
        ("died", "crashed", "the process was killed"),
        ("absent", "mismatched_ranks", "the process did not collect the test: SyntaxError"),
        (
            "passed skipped passed failed",
            "mismatched_ranks",
            f"{DIFFER}: ranks 0, 2 passed; rank 1 skipped (not me); rank 3 failed (ValueError)",
        ),
    ],
)
def test_first_cause_is_the_outcome(
    endings: Callable[[str], list[RankOutcome]], words: str, outcome: str, reason: str
) -> None:
    """Of several things that went wrong the cause of the others is told, and on which ranks."""
    verdict = judge(endings(words))

    assert (verdict.agree, verdict.outcome, verdict.reason) == (False, outcome, reason)


@pytest.mark.parametrize(
    "words", ["passed passed", "failed failed", "skipped skipped", "oom oom", "lost lost", "failed"]
)
def test_ranks_that_ended_alike_agree(
    endings: Callable[[str], list[RankOutcome]], words: str
) -> None:
    """Nothing is added to what all ranks say."""
    assert judge(endings(words)) == JointVerdict()


@pytest.mark.parametrize(
    ("words", "outcome"),
    [
        ("passed absent skipped failed", None),
        ("oom passed", None),
        ("absent died", "crashed"),
        ("passed stuck", "hang"),
        ("failed stuck", "failed"),
    ],
)
def test_ranks_may_differ_in_a_test_that_is_no_benchmark(
    endings: Callable[[str], list[RankOutcome]], words: str, outcome: str | None
) -> None:
    """It may be of some ranks only; a rank that dies or hangs is a failure all the same."""
    assert judge_plain(endings(words)).outcome == outcome


def test_rank_that_asked_to_leave_has_not_passed(came_to_end: EndedMaker) -> None:
    """A rank that ends the session does not leave the others the long grace of a pass."""
    assert came_to_end(0).passed
    assert not came_to_end(0, exit="enough").passed


def test_ranks_are_named_in_runs() -> None:
    """The ranks of a big gang take a short line."""
    assert ranks_text([3], 8) == "rank 3"
    assert ranks_text([7, 0, 1, 2, 5], 8) == "ranks 0-2, 5, 7"
