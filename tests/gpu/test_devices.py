"""What is known of a CUDA device before CUDA starts."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.gpu_clocks

SCRIPT = """
import json, os, sys
if sys.argv[1] == "without-nvml":
    sys.modules["pynvml"] = None
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


@pytest.mark.parametrize("source", ["by-nvml", "without-nvml"])
def test_device_is_known_without_cuda(source: str) -> None:
    """A fork can still use CUDA then; name and memory are those that CUDA tells later."""
    if source == "by-nvml":
        pytest.importorskip("pynvml")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, source], capture_output=True, text=True, check=True
    )
    facts = json.loads(done.stdout.splitlines()[-1])
    assert facts["started"] is False
    assert facts["exit of the fork"] == 1
    assert facts["name"][0] == facts["name"][1]
    # NVML's total without the driver's own part is what CUDA has.
    assert facts["memory"][0] == pytest.approx(facts["memory"][1], rel=0.01)


def test_doctor_examines_the_device() -> None:
    """Driver and torch match here, and what the checks say comes from the device itself."""
    pytest.importorskip("pynvml")
    main = "import sys; from gpubench_plugin.cli import main; sys.exit(main.main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", main, "doctor", "--format=json"],
        capture_output=True,
        text=True,
        check=True,
    )
    report = json.loads(done.stdout)
    checks = {check["name"]: check for check in report["checks"]}
    assert report["torch"]["device"]["name"].startswith("cuda:")
    assert {checks[name]["outcome"] for name in ("driver", "architectures", "nccl")} == {"ok"}
    # What data-centre GPUs tell; clocks are told as well, but not always whether they are locked.
    told = ("gpu_persistence", "gpu_ecc", "gpu_power_limit", "gpu_processes")
    assert "unknown" not in {checks[name]["outcome"] for name in told}
    assert "MHz" in checks["gpu_clocks"]["value"]
