"""A 3×3 convolution in both memory formats."""

import pytest


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("memory_format", ["channels_last", "contiguous"])
@pytest.mark.gpubench_full("bf16", "bf16-true", "amp", "fp16-true")
@pytest.mark.gpubench(config="micro", timing="kernel")
def test_conv2d(gpubench, torch_device, sizes, dtype, tolerance, memory_format, direction):
    """Equally many input and output channels; ``backward`` computes both gradients only."""
    import torch
    from torch.nn.functional import conv2d

    from .checks import require_close

    layout = getattr(
        torch, f"{memory_format}_format" if memory_format == "contiguous" else memory_format
    )
    channels, image_size = sizes.channels, sizes.image_size
    images = torch.randn(sizes.batch, channels, image_size, image_size, device=torch_device)
    weights = torch.randn(channels, channels, 3, 3, device=torch_device) / (3 * channels**0.5)
    upstream = torch.randn_like(images)
    images, weights, upstream = (
        tensor.to(dtype=dtype, memory_format=layout) for tensor in (images, weights, upstream)
    )
    inputs = (images.requires_grad_(), weights.requires_grad_())
    flops = 2 * images.numel() * channels * 9

    def gradients(output, inputs, upstream):
        return torch.autograd.grad(output, inputs, upstream, retain_graph=True)

    exact_inputs = tuple(tensor.detach().double().requires_grad_() for tensor in inputs)
    exact = conv2d(*exact_inputs, padding=1)
    output = conv2d(*inputs, padding=1)
    if direction == "forward":
        pairs = {"output": (output, exact)}
    else:
        actual = gradients(output, inputs, upstream)
        expected = gradients(exact, exact_inputs, upstream.double())
        names = ("gradient of images", "gradient of weights")
        pairs = dict(zip(names, zip(actual, expected, strict=True), strict=True))
    errors = [
        require_close(f"conv2d, {name}", *pair, tolerance=tolerance) for name, pair in pairs.items()
    ]
    gpubench.record("relative_error", max(errors))
    del exact, exact_inputs, pairs

    def forward():
        with torch.no_grad():
            return conv2d(*inputs, padding=1)

    def backward():
        return gradients(output, inputs, upstream)

    if direction == "forward":
        gpubench(forward, samples=sizes.batch, flops=flops)
    else:
        gpubench(backward, samples=sizes.batch, flops=2 * flops)
