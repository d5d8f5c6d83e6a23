"""What is known of a CUDA device before CUDA starts; skipped, with the reason, without one."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

SCRIPT = """
import json, os
import torch
from gpubench_plugin.environment import devices
found = devices.find("cuda")
facts = {"started": torch.cuda.is_initialized()}
child = os.fork()
if not child:
    os._exit(int(torch.ones(1, device="cuda").item()))
facts["exit of the fork"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
properties = torch.cuda.get_device_properties(0)
facts["name"] = [found.model, properties.name]
facts["memory"] = [found.memory_gib, properties.total_memory / 2**30]
print(json.dumps(facts))
"""


def test_device_is_known_without_cuda() -> None:
    """A fork can still use CUDA then; name and memory are those that CUDA tells later."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    facts = json.loads(done.stdout.splitlines()[-1])
    assert facts["started"] is False
    assert facts["exit of the fork"] == 1
    assert facts["name"][0] == facts["name"][1]
    # NVML's total without the driver's own part is what CUDA has.
    assert facts["memory"][0] == pytest.approx(facts["memory"][1], rel=0.01)
