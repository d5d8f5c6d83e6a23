"""A process that prints the facts of torch as a line of JSON, and ends with the CUDA it started."""

from __future__ import annotations

import json
import warnings
from typing import Any

from gpubench_plugin.core import catalog
from gpubench_plugin.environment import devices
from gpubench_plugin.environment.system_facts import nccl_version


def facts() -> dict[str, Any]:
    """Versions, architectures and devices of torch, and the precisions of the default device.

    `precisions` maps each to the reason why it is not supported, or None. `problem` is what torch
    says of a CUDA that it cannot use.
    """
    import torch

    with warnings.catch_warnings(record=True) as problems:
        warnings.simplefilter("always")
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    device = devices.find("auto")
    torch_device = torch.device(device.torch_name)
    return {
        "version": str(torch.__version__),
        "cuda": torch.version.cuda,
        "nccl": nccl_version(torch),
        "architectures": torch.cuda.get_arch_list(),
        "devices": count,
        "problem": " ".join(str(problem.message) for problem in problems),
        "device": {
            "name": device.torch_name,
            "model": device.model,
            "memory_gib": device.memory_gib,
        },
        "precisions": {
            name: catalog.load("precision", name)().unsupported(torch_device)
            for name in catalog.choices("precision")
        },
    }


if __name__ == "__main__":
    print(json.dumps(facts()))  # noqa: T201 # the parent process reads it
