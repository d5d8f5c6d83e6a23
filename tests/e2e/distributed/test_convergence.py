"""Training to a target on two ranks."""

from __future__ import annotations

import pytest

from tests.e2e.distributed.conftest import found_once

pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What each of two ranks found."""
    return found_once("converge.py", tmp_path_factory)


@pytest.mark.parametrize("parallelism", ["ddp", "fsdp2"])
def test_two_ranks_converge_as_one_process_does(parallelism, found):
    """With one global batch the losses, evaluations and steps are those of one process."""
    alone = found[0]["alone"]
    for rank in found:
        together = rank[parallelism]
        assert together["losses"] == pytest.approx(alone["losses"], rel=1e-3)
        assert together["steps_to_target"] == alone["steps_to_target"] > 7
        for mine, other in zip(together["evaluations"], alone["evaluations"], strict=True):
            assert mine["test_loss"] == pytest.approx(other["test_loss"], rel=1e-3)
            assert mine["test_accuracy"] == pytest.approx(other["test_accuracy"], abs=0.006)


@pytest.mark.parametrize("parallelism", ["ddp", "fsdp2"])
def test_ranks_agree_on_what_they_evaluate(parallelism, found):
    """Each rank evaluates its share of the held-out samples; both find the same."""
    one, other = (rank[parallelism] for rank in found)
    assert one["evaluations"] == other["evaluations"]
    assert {one["held_out"], other["held_out"]} == {179, 180}
    assert one["test_loss"] == other["test_loss"]
    assert one["samples"] * 2 == found[0]["alone"]["samples"]
