"""The search for the largest batch that fits, on a memory of paper."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpubench_plugin.core.errors import DoesNotFit
from gpubench_plugin.results.outcomes import outcome_of
from gpubench_plugin.training.batch_fit import LARGEST, fit_batch


def memory_of(capacity: int) -> Callable[[int], str | None]:
    """A step that fits with up to `capacity` samples."""
    return lambda samples: None if samples <= capacity else f"no room for {samples}"


@pytest.mark.parametrize("capacity", [1, 2, 3, 4, 5, 7, 8, 9, 100, 1000, 65535])
def test_the_largest_that_fits_is_found(capacity: int) -> None:
    """Whatever the capacity, the found batch fits, and the next larger one was tried in vain."""
    fit = fit_batch(memory_of(capacity))
    tried = {trial.samples: trial.fits for trial in fit.trials}
    assert (fit.samples, fit.bound_by) == (capacity, "memory")
    assert (tried[capacity], tried[capacity + 1]) == (True, False)
    assert len(tried) == len(fit.trials)  # none is tried twice


def test_sizes_double_and_then_bisect() -> None:
    """The trials stand in the order in which they were made."""
    fit = fit_batch(memory_of(11))
    assert [t.samples for t in fit.trials] == [1, 2, 4, 8, 16, 12, 10, 11]
    assert [t.reason for t in fit.trials if not t.fits] == ["no room for 16", "no room for 12"]


@pytest.mark.parametrize(
    ("epoch", "samples", "bound"),
    [(100, 100, "data"), (1, 1, "data"), (LARGEST, LARGEST, "data"), (None, LARGEST, "largest")],
)
def test_the_data_and_a_limit_end_the_search(epoch: int | None, samples: int, bound: str) -> None:
    """With memory for everything, no batch exceeds the epoch or the limit, and it says which."""
    fit = fit_batch(memory_of(10**9), epoch=epoch)
    assert (fit.samples, fit.bound_by) == (samples, bound)
    assert max(trial.samples for trial in fit.trials) == samples


def test_memory_within_an_epoch_bounds_by_memory() -> None:
    """The last doubling stops at the epoch's size, from where the bisection goes down."""
    fit = fit_batch(memory_of(70), epoch=100)
    assert [t.samples for t in fit.trials][:8] == [1, 2, 4, 8, 16, 32, 64, 100]
    assert (fit.samples, fit.bound_by) == (70, "memory")


@pytest.mark.parametrize("smallest", [1, 2])
def test_a_smallest_batch_that_does_not_fit_is_out_of_memory(smallest: int) -> None:
    """The benchmark's outcome is ``oom``, and the reason names the size and the allocation."""
    with pytest.raises(DoesNotFit) as error:
        fit_batch(memory_of(0), smallest=smallest)
    outcome, reason = outcome_of(error.value)
    assert outcome == "oom"
    assert f"batch size {smallest} did not fit: no room for {smallest}" in reason


def test_an_error_of_a_trial_ends_the_search() -> None:
    """Only a number that does not fit is an answer."""

    def attempt(samples: int) -> str | None:
        raise ValueError(samples)

    with pytest.raises(ValueError, match="1"):
        fit_batch(attempt)


def test_the_record_has_every_trial() -> None:
    """The record says what fitted, the journal also why the others did not."""
    events: list[dict[str, object]] = []
    check = fit_batch(memory_of(2)).prepare(lambda event: events.append(dict(event)))
    assert check.correctness["batch_fit"] == {
        "samples": 2,
        "bound_by": "memory",
        "trials": [
            {"samples": 1, "fits": True},
            {"samples": 2, "fits": True},
            {"samples": 4, "fits": False},
            {"samples": 3, "fits": False},
        ],
    }
    reasons = [event.get("reason", "") for event in events]
    assert reasons == ["", "", "no room for 4", "no room for 3"]
