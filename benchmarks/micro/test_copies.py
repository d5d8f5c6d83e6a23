"""Copies on the device and between device and host, and kernel launches."""

import pytest

from gpubench_plugin import Unsupported
from gpubench_plugin.config.marks import caches


@caches
@pytest.mark.gpubench(config="micro", timing="kernel")
def test_copy_device(gpubench, torch_device, sizes, cache):
    """``micro.copy_bytes`` within device memory, read and written."""
    import torch

    from .checks import require_equal

    source = torch.randint(0, 256, (sizes.copy_bytes,), dtype=torch.uint8, device=torch_device)
    target = torch.zeros_like(source)

    def step():
        target.copy_(source)

    step()
    require_equal("copy on the device", target, source)
    gpubench(step, bytes=2 * sizes.copy_bytes)


@pytest.mark.parametrize("memory", ["pinned", "pageable"])
@pytest.mark.parametrize("direction", ["host_to_device", "device_to_host"])
@pytest.mark.gpubench(config="micro")
def test_copy_host(gpubench, torch_device, sizes, direction, memory):
    """``micro.copy_bytes`` between the host and the device."""
    import torch

    from .checks import require_equal

    if torch_device.type == "cpu":
        raise Unsupported("there is no copy to a CPU; choose --device=cuda")
    pinned = memory == "pinned"
    # The device draws faster: a gibibyte takes a CPU seconds.
    source = torch.randint(0, 256, (sizes.copy_bytes,), dtype=torch.uint8, device=torch_device)
    host = torch.zeros(sizes.copy_bytes, dtype=torch.uint8, pin_memory=pinned)
    target = host
    if direction == "host_to_device":
        source, target = host.copy_(source), torch.zeros_like(source)
    if pinned != host.is_pinned():
        raise Unsupported(f"memory could not be {memory}")

    def step():
        target.copy_(source, non_blocking=True)

    step()
    torch.accelerator.synchronize(torch_device)
    require_equal("copy", target, source)
    gpubench(step, bytes=sizes.copy_bytes)


@pytest.mark.gpubench(config="micro")
def test_launch(gpubench, torch_device):
    """A kernel on one element, whose time is that of the launch."""
    import torch

    from .checks import require_equal

    if torch_device.type != "cuda":
        raise Unsupported("kernels are launched on CUDA devices only; choose --device=cuda")
    number = torch.zeros(1, device=torch_device)

    def step():
        number.add_(1.0)

    step()
    require_equal("launch", number, torch.ones(1))
    gpubench(step)
