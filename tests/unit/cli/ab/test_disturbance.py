"""Which pairs are measured again, and what is said of disturbed launches."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from gpubench_plugin.cli.ab.disturbance import (
    Attempt,
    disturbance_cause,
    disturbance_notes,
    disturbing_flags,
    may_hide_slow_launches,
    pair_to_remeasure,
)
from gpubench_plugin.core.records import Result, Run
from tests.support.messages import mentions


def attempts(text: str) -> list[Attempt]:
    """One per word, in the order of the pairs: which sides were disturbed, ``-`` for none."""
    return [
        attempt(number, base="b" in word, head="h" in word)
        for number, word in enumerate(text.split(), start=1)
    ]


def attempt(pair: int, *, base: bool = False, head: bool = False) -> Attempt:
    return Attempt(pair=pair, flags={"base": ("contended",) * base, "head": ("contended",) * head})


def to_remeasure(tries: list[Attempt], *, judged_up_to: int) -> int | None:
    found = pair_to_remeasure(tries, judged_up_to=judged_up_to)
    return found and found.pair


THREADED = Result(id="t::threaded", outcome="measured")


def run(**flags: tuple[str, ...]) -> Run:
    results = {name: Result(id=name, outcome="measured", flags=of) for name, of in flags.items()}
    return Run(label="run", results=results)


def test_a_disturbed_pair_is_repeated() -> None:
    """The first that no look has judged; replaced launches count, and may hide something."""
    assert to_remeasure(attempts("- b - - h"), judged_up_to=0) == 2
    assert to_remeasure(attempts("- b - - - h - - - -"), judged_up_to=5) == 6
    assert to_remeasure(attempts("- b - - - - - - - -"), judged_up_to=5) is None
    assert to_remeasure(attempts("- - - - -"), judged_up_to=0) is None
    tries = attempts("h - - - -")
    assert to_remeasure(tries, judged_up_to=0) == 1
    tries += [attempt(1, head=True), *attempts("- - - - - - - - - -")[5:]]
    assert disturbance_cause(tries) == "head"
    assert to_remeasure(tries, judged_up_to=0) is None
    again = attempt(1)
    assert may_hide_slow_launches([*attempts("h - - - -"), again])
    assert not may_hide_slow_launches(attempts("h - - - -"))
    assert not may_hide_slow_launches([*attempts("b - - - -"), again])
    assert not may_hide_slow_launches([*attempts("h - b - -"), again])


def test_at_most_one_pair_in_three_is_repeated() -> None:
    """Whatever is disturbed, and also where the repeats are."""
    random = Random(3)
    for share in (0.1, 0.2, 0.3, 0.5, 0.9):
        tries: list[Attempt] = []
        for pairs in range(1, 61):
            tries.append(_drawn(random, pairs, share))
            while pairs % 5 == 0 and (pair := to_remeasure(tries, judged_up_to=pairs - 5)):
                tries.append(_drawn(random, pair, share))
            assert len(tries) - pairs <= pairs / 3


def _drawn(random: Random, pair: int, share: float) -> Attempt:
    return attempt(pair, base=random.random() < share, head=random.random() < share)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- - - - -", None),
        ("- h - - -", "machine"),
        ("b h - - - h -", "machine"),
        ("h - h - -", "head"),
        ("h h bh h h h h h", "head"),
        ("b - b - b", "base"),
        ("b h bh - h", "always"),
        ("bh bh bh bh bh", "always"),
    ],
)
def test_the_cause_is_told_from_both_sides(text: str, expected: str | None) -> None:
    """What only one side raises again and again is its code's; what most pairs raise is no help."""
    assert disturbance_cause(attempts(text)) == expected
    repeated = to_remeasure(attempts(text), judged_up_to=0)
    assert (repeated is not None) == (expected == "machine")


def test_half_of_the_benchmarks_disturb_a_launch() -> None:
    """Of those that go on; flags that tell of the numbers alone disturb none."""
    launch = run(a=("contended",), b=("unsteady", "drifting", "dependent"), c=())
    assert not disturbing_flags(launch, ["a", "b", "c"])
    assert disturbing_flags(launch, ["a", "b"])
    assert not disturbing_flags(launch, ["b"])
    assert not disturbing_flags(launch, [])
    for flag in ("throttled", "contended", "descheduled", "suspended"):
        assert disturbing_flags(run(a=(flag,)), ["a"])


def test_the_report_counts_disturbed_launches_and_says_what_to_do() -> None:
    """By side and by flag, with the pairs that were measured again."""
    hot = Attempt(pair=5, flags={"base": (), "head": ("contended", "throttled")})
    first, second = disturbance_notes([*attempts("- b - -"), hot, attempt(2)], [THREADED])
    assert mentions(first, "base 1 of 6, head 1 of 6 (contended 2, throttled 1)", "remeasured: 1")
    assert mentions(second, "--distributed.threads=1, or close", "on a GPU lock its clocks")
    assert list(disturbance_notes(attempts("-"), [])) == []
    note, _ = disturbance_notes(attempts("bh bh bh - b"), [])
    assert "pairs remeasured: none" in note


def test_nobody_is_told_what_was_done_already() -> None:
    """One thread for all benchmarks; another one may still have several."""
    single = replace(THREADED, settings={"distributed.threads": 1})
    _, note = disturbance_notes(attempts("- b - -"), [single, single])
    assert mentions(note, "to quiet the machine: close programs; on a GPU")
    _, note = disturbance_notes(attempts("- b - -"), [single, THREADED])
    assert "--distributed.threads=1" in note
