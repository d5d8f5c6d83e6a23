"""Attention in shapes of our own."""

import pytest


@pytest.mark.parametrize("length", ["64", "256"])
def test_attention(gpubench, torch_device, precision, length):
    """Self-attention of four heads, forward only."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    query = torch.randn(2, 4, int(length), 32, device=torch_device)

    def step():
        with precision.forward_context(torch_device):
            scaled_dot_product_attention(query, query, query)

    gpubench.record("score_bytes", 2 * 4 * int(length) ** 2 * 4, unit="bytes")
    gpubench(step, samples=2, tokens=2 * int(length))
