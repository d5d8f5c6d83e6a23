"""The fp32 reference and checkpoints of a training on two real ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.exhaustive
def test_two_ranks_train_as_their_reference_and_resume(torchrun: Callable[..., list[Any]]) -> None:
    """Every parallelism is within the band, gradients that stay apart are not, checkpoints resume.

    Both ranks say the same of the comparison. Only rank zero writes, both go on bit by bit.
    """
    first, second = torchrun("reference.py")
    checkpoints = [found.pop("checkpoint") for found in (first, second)]
    assert first == second
    assert first.pop("apart").startswith("step 1: the gradient norm is")
    for case, found in first.items():
        assert found["steps"] == 3, case
        sharp = case.endswith("fp32")
        assert found["loss_error"] <= (1e-5 if sharp else max(found["loss_bands"])), case
        assert found["gradient_norm_error"] <= (1e-4 if sharp else max(found["gradient_bands"])), (
            case
        )
    assert [found["path"] for found in checkpoints] == ["latest.json", None]
    assert all(found["equal"] for found in checkpoints)
