"""Time from the start of a process to a steady training step."""

import json
import math
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from statistics import median

import pytest

from gpubench_plugin import CorrectnessError
from gpubench_plugin.core.errors import MissingPackage

_SCRIPT = Path(__file__).with_name("cold_start.py")
_STEADY_STEPS = 5


@pytest.mark.parametrize(
    "compiled",
    [
        pytest.param("eager", marks=pytest.mark.gpubench_set("model.compile=none")),
        pytest.param(
            "compiled",
            marks=[pytest.mark.gpubench_set("model.compile=default"), pytest.mark.gpubench_full],
        ),
    ],
)
@pytest.mark.gpubench_full("bf16", "bf16-true", "amp", "fp16-true")
@pytest.mark.gpubench(config="cold-start")
def test_cold_start(gpubench, gpubench_config, torch_device, precision, compiled):
    """A process per step: interpreter, imports, device, model, compilation, steps, and exit.

    Each stage is recorded in seconds and as a fraction of the process.
    """
    assert gpubench_config.training.samples  # refuses, before a process is started, to fit a batch
    process = Process(gpubench_config, torch_device)
    for stage in process.stages:
        seconds, share = partial(process.seconds, stage), partial(process.share, stage)
        gpubench.record(f"cold_{stage}_s", seconds, unit="s", better="lower")
        gpubench.record(f"cold_{stage}_fraction", share, unit="fraction")
    steady_s = partial(process.seconds, "steady_steps", calls=_STEADY_STEPS)
    gpubench.record("cold_steady_step_s", steady_s, unit="s", better="lower")
    gpubench(process)


class Process:
    """Training script as a benchmark: each call runs it and keeps its report."""

    def __init__(self, configuration, device):
        self._configuration = configuration.model_dump_json()
        self._device = str(device)
        on_device = ("device_init",) if device.type != "cpu" else ()
        compiled = ("compile",) if configuration.model.compile != "none" else ()
        self.stages = (
            *("interpreter", "import_torch", "import_workload", *on_device, "model_build"),
            *(*compiled, "first_step", "steady_steps", "exit"),
        )
        self._reports = []
        self.calls = 0

    def step(self):
        """Run the script.

        Raises:
            CorrectnessError: it failed, or a loss is not finite.
            MissingPackage: the model's library cannot be imported there.
        """
        started_ns = time.monotonic_ns()
        process = subprocess.run(
            [sys.executable, "-P", str(_SCRIPT), str(started_ns), self._device],
            input=self._configuration,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        ended_ns = time.monotonic_ns()
        if process.returncode:
            raise CorrectnessError(
                f"{_SCRIPT.name} exited with {process.returncode}\n{process.stderr}"
            )
        report = json.loads(process.stdout.splitlines()[-1])
        if missing := report.get("missing_package"):
            raise MissingPackage(**missing)
        report["stages"]["exit"] = (ended_ns - report["ended_ns"]) * 1e-9
        if not all(math.isfinite(loss) for loss in report["losses"]):
            raise CorrectnessError(f"{_SCRIPT.name}: losses {report['losses']}")
        if tuple(report["stages"]) != self.stages:
            raise CorrectnessError(f"{_SCRIPT.name}: stages {list(report['stages'])}")
        self._reports.append(report["stages"])
        self.calls += 1

    def seconds(self, stage, calls=1):
        """Median over the timed calls."""
        return median(stages[stage] / calls for stages in self._reports)

    def share(self, stage):
        """Median fraction of the process."""
        return median(stages[stage] / sum(stages.values()) for stages in self._reports)

    def prepare(self, log):
        """Every call is checked."""
        from gpubench_plugin.core.records import Check

        return Check()

    def begin(self):
        """Drop the untimed reports."""
        self._reports.clear()

    def finish(self):
        """No facts."""
        return {}

    def work(self):
        """No work."""
        from gpubench_plugin.core.records import Work

        return Work()

    def flops_step(self):
        """No FLOPs."""
