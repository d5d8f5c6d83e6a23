"""Steps of an optimizer over many parameters, by each of torch's implementations."""

import pytest

_CHECKED = 8


@pytest.mark.parametrize("implementation", ["loop", "foreach", "fused"])
@pytest.mark.parametrize("name", ["sgd", "adamw"])
@pytest.mark.gpubench(config="micro")
def test_optimizer(gpubench, torch_device, sizes, name, implementation):
    """One step; of some parameters it is compared with the loop's in double precision."""
    from gpubench_plugin.workloads._micro import TENSORS_MOVED, check, optimizer, parameters

    over = parameters(sizes.tensors, sizes.tensor_elements, torch_device)
    some = over[:: max(1, len(over) // _CHECKED)]
    gpubench.record("relative_error", check(name, implementation, some))
    made = optimizer(name, implementation, over)
    gpubench(made.step, bytes=TENSORS_MOVED[name] * sum(tensor.nbytes for tensor in over))
