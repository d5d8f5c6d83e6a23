"""The header before every latent image."""

from __future__ import annotations

import pytest
import torch

from gpubench_plugin.workloads.diffusion.transport import LENGTH, Header


def header(**changes: object) -> Header:
    known = {"call": 7, "sample": 3, "step": 4, "sender": 0, "receiver": 1}
    return Header(**{**known, "dtype": torch.float32, "shape": (1, 4, 8, 8), **changes})  # type: ignore[arg-type] # any field may change


@pytest.mark.parametrize("shape", [(), (5,), (1, 4, 8, 8), tuple(range(1, 9))])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_decoded_is_what_was_encoded(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    """Up to eight dimensions and every type of latents travel in 16 integers."""
    sent = header(dtype=dtype, shape=shape)
    numbers = sent.encode()
    assert (numbers.shape, numbers.dtype) == ((LENGTH,), torch.int64)
    assert Header.decode(numbers) == sent


@pytest.mark.parametrize(("place", "number"), [(0, 0), (6, 99), (6, -1), (7, 9), (7, -1)])
def test_other_numbers_are_no_header(place: int, number: int) -> None:
    """A tensor that is something else is told from a header, and never read as one."""
    numbers = header().encode()
    numbers[place] = number
    assert Header.decode(numbers) is None


def test_text_names_sample_step_shape_and_both_ranks() -> None:
    """What a message about a mismatch is made of."""
    assert str(header()) == (
        "sample 3 before step 4 (call 7) as float32 1x4x8x8 from rank 0 for rank 1"
    )
