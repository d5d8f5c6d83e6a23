"""Scaled dot product attention by each of torch's implementations."""

import pytest


@pytest.mark.parametrize("direction", ["forward", "forward_backward"])
@pytest.mark.parametrize("implementation", ["math", "flash", "efficient", "cudnn"])
@pytest.mark.gpubench_full("amp", "fp16-true")
@pytest.mark.gpubench(config="micro", timing="kernel")
def test_attention(gpubench, torch_device, sizes, dtype, tolerance, implementation, direction):
    """Attention without a mask; skipped with torch's reasons where it is not supported."""
    import torch
    from torch.nn.attention import sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    from gpubench_plugin.workloads._micro.attention import BACKENDS, flops, run_attention
    from gpubench_plugin.workloads._micro.checks import require_close

    backward = direction == "forward_backward"
    shape = (sizes.batch, sizes.heads, sizes.tokens, sizes.head_size)
    query, key, value, upstream = (
        torch.randn(shape, device=torch_device, dtype=dtype) for _ in range(4)
    )
    inputs = (query, key, value)
    for tensor in inputs:
        tensor.requires_grad_(backward)

    def attention():
        return scaled_dot_product_attention(*inputs)

    def attention_and_gradients():
        return torch.autograd.grad(scaled_dot_product_attention(*inputs), inputs, upstream)

    output = run_attention(implementation, attention)
    exact_inputs = [tensor.detach()[:1, :1].double().requires_grad_(backward) for tensor in inputs]
    scores = exact_inputs[0] @ exact_inputs[1].mT / sizes.head_size**0.5
    exact = torch.softmax(scores, dim=-1) @ exact_inputs[2]
    pairs = [("output", output[:1, :1], exact)]
    step = attention_and_gradients if backward else attention
    with sdpa_kernel(BACKENDS[implementation]):
        if backward:
            actual = (gradient[:1, :1] for gradient in step())
            expected = torch.autograd.grad(exact, exact_inputs, upstream[:1, :1].double())
            names = ("gradient of query", "gradient of key", "gradient of value")
            pairs += zip(names, actual, expected, strict=True)
        errors = [
            require_close(f"attention by {implementation}, {name}", *pair, tolerance=tolerance)
            for name, *pair in pairs
        ]
        gpubench.record("relative_error", max(errors))
        gpubench(step, samples=sizes.batch, flops=flops(*shape, backward=backward))
