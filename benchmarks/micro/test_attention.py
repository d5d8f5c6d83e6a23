"""Scaled dot product attention by each of torch's implementations."""

import warnings

import pytest

from gpubench_plugin import Unsupported

BACKENDS = {
    "math": "MATH",
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
}
"""torch's implementations."""

_FUSED = "_scaled_dot_product_"


@pytest.mark.parametrize("direction", ["forward", "forward_backward"])
@pytest.mark.parametrize("implementation", BACKENDS)
@pytest.mark.gpubench_full("amp", "fp16-true")
@pytest.mark.gpubench(config="micro", timing="kernel")
def test_attention(gpubench, torch_device, sizes, dtype, tolerance, implementation, direction):
    """Attention without a mask; skipped with torch's reasons where it is not supported."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    from .checks import require_close

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
    with sdpa_kernel(getattr(SDPBackend, BACKENDS[implementation])):
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


def flops(batch, heads, tokens, head_size, *, backward):
    """Two products of tokens × tokens × head_size, and four more in the backward pass.

    Flash attention's recomputation does not count, so that all implementations have the same FLOPs.
    Source: Dao et al., FlashAttention, arXiv:2205.14135.
    """
    return (6 if backward else 2) * 2 * batch * heads * tokens * tokens * head_size


def run_attention(name, compute):
    """Run `compute` with only this attention implementation enabled.

    Raises:
        Unsupported: torch cannot use it for these inputs on this device, or used another.
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils._python_dispatch import TorchDispatchMode

    from .checks import is_failure

    kernels = set()

    class FusedKernels(TorchDispatchMode):
        """Records the names of fused kernels; ``math`` attention has none."""

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            operation = func.overloadpacket.__name__
            if operation.startswith(_FUSED):
                kernels.add(operation.removeprefix(_FUSED))
            return func(*args, **(kwargs or {}))

    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always")
        try:
            with sdpa_kernel(getattr(SDPBackend, BACKENDS[name])), FusedKernels():
                result = compute()
        except RuntimeError as error:
            if is_failure(error):
                raise
            reasons = "; ".join(
                str(warning.message).split("(Triggered")[0] for warning in caught_warnings
            )
            first_line = str(error).partition("\n")[0]
            raise Unsupported(f"attention by {name}: {reasons or first_line}") from error
    used_kernels = ", ".join(sorted(kernels)) or "math"
    if name not in used_kernels:
        raise Unsupported(f"attention by {name}: torch used {used_kernels} instead")
    return result
