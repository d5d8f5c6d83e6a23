from __future__ import annotations

import pytest

from gpubench_plugin.launchers.torchrun.plugin import difference_message

MANY = [f"test_{number:04}" for number in range(1000)]


@pytest.mark.parametrize(
    ("collected", "said"),
    [
        (
            ["ab", "ab", "ax", "b"],
            "rank 2; only rank 2 collected x; rank 2 did not collect b;",
        ),
        (["ab", "ab", "ax", "b"], "; ranks 2-3 differ from rank 0"),
        (["ab", "ba"], "2 on rank 0, 2 on rank 1; rank 1 collected them in another order"),
        ([MANY, *99 * [[]]], "rank 1 did not collect test_0000, test_0001, test_0002 and 997 more"),
    ],
)
def test_first_rank_that_differs_is_told_apart(collected: list[list[str]], said: str) -> None:
    """The user sees which tests depend on the rank, in a short message however many do."""
    message = difference_message([list(ids) for ids in collected])
    assert said in message
    assert len(message) < 300
