"""The script whose start the system benchmarks measure."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from gpubench_plugin.config.sections import Configuration
from gpubench_plugin.workloads.mlp import MLP

SCRIPT = Path(__file__).parents[2] / "benchmarks/system/cold_start.py"


def test_the_stages_are_the_whole_of_the_process() -> None:
    """From before the start to the last step every second belongs to one stage, in order."""
    configuration = Configuration[MLP.Section].model_validate(
        {"model": {"name": "mlp", "image_size": 8, "hidden_sizes": (4,), "classes": 10}}
    )
    started_ns = time.monotonic_ns()
    done = subprocess.run(
        [sys.executable, "-P", str(SCRIPT), str(started_ns), "cpu"],
        input=configuration.model_dump_json(),
        capture_output=True,
        text=True,
        check=True,
    )
    report = json.loads(done.stdout)

    assert list(report["stages"]) == [
        *("interpreter", "import_torch", "import_workload", "model_build"),
        *("first_step", "steady_steps"),
    ]
    whole_s = (report["ended_ns"] - started_ns) * 1e-9
    assert abs(sum(report["stages"].values()) - whole_s) < 1e-6
    assert min(report["stages"].values()) > 0
    assert report["losses"][-1] < report["losses"][0]
