"""The batch."""

from __future__ import annotations

import torch

from gpubench_plugin.workloads.base import Batch


def test_split_gives_views_in_order():
    """Splitting gives batches of the asked size that share the whole's memory."""
    whole = Batch(torch.arange(12.0).reshape(6, 2), torch.arange(6))
    parts = whole.split(2)
    assert [part.targets.tolist() for part in parts] == [[0, 1], [2, 3], [4, 5]]
    assert whole.inputs[2:].data_ptr() == parts[1].inputs.data_ptr()


def test_split_keeps_the_memory_format():
    """Parts of a channels_last batch are channels_last."""
    images = torch.randn(4, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    part = Batch(images, torch.arange(4)).split(2)[1]
    assert part.inputs.is_contiguous(memory_format=torch.channels_last)
