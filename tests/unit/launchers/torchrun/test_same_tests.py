from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from gpubench_plugin.launchers.torchrun.plugin import difference_message

if TYPE_CHECKING:
    from collections.abc import Sequence

MANY = [f"test_{number:04}" for number in range(1000)]


@pytest.mark.parametrize(
    ("root", "own", "said"),
    [
        ("ab", "ax", "2 on rank 1; only rank 1 collected x; rank 1 did not collect b"),
        ("ab", "ba", "2 on rank 0, 2 on rank 1; rank 1 collected them in another order"),
        (MANY, "", "not collect test_0000, test_0001, test_0002 and 997 more"),
        ("ab", "ab", ""),
    ],
)
def test_a_rank_that_differs_is_told(root: Sequence[str], own: str, said: str) -> None:
    """The user sees which tests depend on the rank, in a short message however many do."""
    message = difference_message(1, list(own), list(root))
    assert message.endswith(said)
    assert bool(said) <= len(message) < (300 if said else 1)
