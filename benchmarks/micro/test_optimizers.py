"""Optimizer steps over many parameters, by each of torch's implementations."""

import pytest

IMPLEMENTATIONS = {
    "loop": {"foreach": False, "fused": False},
    "foreach": {"foreach": True, "fused": False},
    "fused": {"foreach": False, "fused": True},
}
"""One operation per parameter, one for many parameters, or one kernel for the whole step."""

OPTIMIZERS = {
    "sgd": ("SGD", {"lr": 0.01, "momentum": 0.9}),
    "adamw": ("AdamW", {"lr": 0.001, "weight_decay": 0.01}),
}
"""Class and options by name."""

TENSORS_MOVED = {"sgd": 5, "adamw": 7}
"""Minimum memory traffic of a step in units of the parameters: parameters and each state are read
and written, gradients read."""

_CHECKED = 8  # parameters, a sample that is cheap in fp64; not measured


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.gpubench(config="micro")
def test_optimizer(gpubench, torch_device, sizes, name, implementation):
    """One step, checked on some parameters against the for-loop in double precision."""
    tensors = parameters(sizes.tensors, sizes.tensor_elements, torch_device)
    sample = tensors[:: max(1, len(tensors) // _CHECKED)]
    gpubench.record("relative_error", check(name, implementation, sample))
    step = optimizer(name, implementation, tensors).step
    gpubench(step, bytes=TENSORS_MOVED[name] * sum(tensor.nbytes for tensor in tensors))


def parameters(count, elements, device):
    """Random tensors with gradients."""
    import torch

    tensors = [torch.randn(elements, device=device) for _ in range(count)]
    for parameter in tensors:
        parameter.grad = torch.randn_like(parameter)
    return tensors


def optimizer(name, implementation, tensors):
    """The optimizer for these parameters.

    Raises:
        Unsupported: the device or torch lacks this implementation.
    """
    from torch import optim

    from .checks import skip_if_unsupported

    kind, options = OPTIMIZERS[name]
    with skip_if_unsupported(f"{name}, {implementation}"):
        return getattr(optim, kind)(tensors, **options, **IMPLEMENTATIONS[implementation])


def check(name, implementation, tensors, *, steps=2):
    """Compare some steps with the double precision for-loop implementation; the largest error.

    Raises:
        CorrectnessError: it is beyond what single precision explains.
        Unsupported: the device or torch lacks this implementation.
    """
    import torch

    from .checks import require_close, skip_if_unsupported

    actual = [_copy(parameter, parameter.dtype) for parameter in tensors]
    expected = [_copy(parameter, torch.float64) for parameter in tensors]
    measured = optimizer(name, implementation, actual)
    reference = optimizer(name, "loop", expected)
    label = f"{name}, {implementation}"
    for _ in range(steps):
        with skip_if_unsupported(label):  # some implementations refuse only here
            measured.step()
        reference.step()
    # 1e-6: about 16 roundings to fp32 in two steps.
    return max(
        require_close(label, a, e, tolerance=1e-6) for a, e in zip(actual, expected, strict=True)
    )


def _copy(parameter, dtype):
    clone = parameter.detach().to(dtype, copy=True)
    clone.grad = parameter.grad.to(dtype, copy=True)
    return clone
