"""Denoising steps split over two real ranks; they are started once."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.distributed.conftest import found_once

pytestmark = pytest.mark.exhaustive

SCRIPT = Path(__file__).parent / "ranks" / "diffusion.py"
DIFFUSION = runpy.run_path(str(SCRIPT))


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What each of two ranks found."""
    return found_once(SCRIPT.name, tmp_path_factory)


@pytest.mark.parametrize("case", DIFFUSION["CASES"])
def test_two_ranks_equal_one_process_bit_by_bit(case: str, two_ranks: list[Any]) -> None:
    """What comes out at the second rank is what the first one computes alone."""
    alone, piped = (rank[case]["outputs"] for rank in two_ranks)
    samples = DIFFUSION["CASES"][case][2]
    assert (piped, len(set(piped))) == (alone, samples)  # and no sample is like another


def test_ideal_speed_up_grows_with_the_samples(two_ranks: list[Any]) -> None:
    """2 M / (M + 1), as all ranks say."""
    for rank in two_ranks:
        found = [rank[f"conditional ddim {count}"]["ideal"] for count in DIFFUSION["SAMPLES"]]
        assert found == pytest.approx([1, 4 / 3, 8 / 5, 16 / 9])


@pytest.mark.parametrize(
    ("wrong", "came"),
    [
        ("step", "sample 3 before step 5 (call 1) as float32 1x4x8x8 from rank 0 for rank 1"),
        ("sample", "sample 2 before step 4 (call 1) as float32 1x4x8x8 from rank 0 for rank 1"),
        ("shape", "sample 3 before step 4 (call 1) as float32 1x4x16x16 from rank 0 for rank 1"),
        ("dtype", "sample 3 before step 4 (call 1) as bfloat16 1x4x8x8 from rank 0 for rank 1"),
        ("receiver", "sample 3 before step 4 (call 1) as float32 1x4x8x8 from rank 7 for rank 1"),
        ("no header", "data that is not a header"),
    ],
)
def test_wrong_message_is_named(wrong: str, came: str, two_ranks: list[Any]) -> None:
    """Both messages are said, with sample, step, shape and ranks."""
    expected = (
        "rank 1 waited for sample 3 before step 4 (call 1) as float32 1x4x8x8 from rank 0 for "
        f"rank 1, but received {came}"
    )
    assert two_ranks[1]["mismatches"][wrong] == ["CorrectnessError", expected]


def test_silence_ends_with_what_was_waited_for(two_ranks: list[Any]) -> None:
    """A message that does not come fails the receiver in time, and names the key of the limit."""
    kind, said = two_ranks[1]["silence"]
    assert kind == "LostMessage"
    assert said.startswith("rank 1 waited for sample 3 before step 4")
    assert said.endswith("for 0.2 s (measure.timeout_s)")


def test_lost_connection_is_said_by_the_sender(two_ranks: list[Any]) -> None:
    """Whom the message was for is named, and nothing is waited for in vain."""
    kind, said = two_ranks[0]["lost"]
    assert (kind, "sample 3 before step 4" in said) == ("LostMessage", True)
    assert "rank 0" in said
