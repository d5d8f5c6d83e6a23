"""Names that are likely slips for others."""

from __future__ import annotations

import pytest

from gpubench_plugin.baselines.store import near_miss


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("mian", "main"),
        ("mainn", "main"),
        ("trani", "train"),
        ("tarin-main", "train-main"),
        ("ngihtly", "nightly"),
        ("nighly", "nightly"),
        ("nightlly", "nightly"),
        ("nihgtly.main", "nightly.main"),
        ("Main", "main"),
        ("relase-1.4", "release-1.4"),
        ("relaase-1.4", "release-1.4"),
        ("nightly_a100", "nightly-a100"),
    ],
)
def test_a_slip_is_a_near_miss(name: str, other: str) -> None:
    """Two letters swapped, one too many or too few, a wrong one inside; cases do not count."""
    assert near_miss(name, ["zzz", other, "unlike"]) == other
    assert near_miss(other, [name]) == name


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("main", "main"),
        ("main2", "main"),
        ("release-1.5", "release-1.4"),
        ("nightly-h100", "nightly-a100"),
        ("part-b", "part-a"),
        ("b", "a"),
        ("nightly", "main"),
        ("", "main"),
        ("main-amp", "main"),
        ("mian-trani", "main-train"),
    ],
)
def test_another_name_is_none(name: str, other: str) -> None:
    """Other numbers and other letters of a list are meant; two slips at once are none."""
    assert near_miss(name, [other]) is None


@pytest.mark.parametrize(
    "pair",
    [
        "cpu/gpu",
        "main-cpu/main-gpu",
        "tpu/gpu",
        "async/sync",
        "prod/prog",
        "fast/last",
        "test/best",
        "train/trains",
        "fwd/bwd",
        "mha/mla",
        "relu/gelu",
        "silu/selu",
        "adam/adamw",
        "feature-login/feature-logic",
        "encoder/decoder",
        "tp/pt",
        "sdg/sgd",
        "flat/fla",
        "batch/match",
        "linear/lineal",
    ],
)
def test_words_of_the_trade_are_all_meant(pair: str) -> None:
    """A first or last letter, and any in a short word, makes another word."""
    one, two = pair.split("/")
    assert near_miss(one, [two]) is None
    assert near_miss(two, [one]) is None
