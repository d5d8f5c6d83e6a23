"""Optimizer steps over many parameters, by each of torch's implementations."""

import pytest

_CHECKED = 8  # parameters, a sample that is cheap in fp64; not measured


@pytest.mark.parametrize("implementation", ["loop", "foreach", "fused"])
@pytest.mark.parametrize("name", ["sgd", "adamw"])
@pytest.mark.gpubench(config="micro")
def test_optimizer(gpubench, torch_device, sizes, name, implementation):
    """One step, checked on some parameters against the for-loop in double precision."""
    from gpubench_plugin.workloads._micro.parameter_lists import (
        TENSORS_MOVED,
        check,
        optimizer,
        parameters,
    )

    tensors = parameters(sizes.tensors, sizes.tensor_elements, torch_device)
    sample = tensors[:: max(1, len(tensors) // _CHECKED)]
    gpubench.record("relative_error", check(name, implementation, sample))
    step = optimizer(name, implementation, tensors).step
    gpubench(step, bytes=TENSORS_MOVED[name] * sum(tensor.nbytes for tensor in tensors))
