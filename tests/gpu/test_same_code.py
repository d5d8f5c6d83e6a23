"""``gpubench ab`` on two copies of the same code on a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu_sessions

SOURCE = """
import time
import pytest, torch

pytestmark = pytest.mark.gpubench

def spin():
    end = time.perf_counter() + 1e-3
    while time.perf_counter() < end:
        pass

def test_spin(gpubench):
    gpubench(spin)

@pytest.mark.parametrize("size", [512, 4096])
def test_product(gpubench, torch_device, size):
    matrix = torch.randn(size, size, device=torch_device)
    gpubench(lambda: matrix @ matrix)

def test_short_kernels(gpubench, torch_device):
    values = torch.randn(1024, device=torch_device)
    def step():
        for _ in range(20):
            values.neg_()
    gpubench(step)
"""
MAIN = "import sys; from gpubench_plugin.cli.main import main; sys.exit(main())"


def test_the_same_code_has_not_changed(tmp_path: Path) -> None:
    """Five pairs of launches of each: unchanged, or at most undecided."""
    for side in ("base", "head"):
        (tmp_path / side).mkdir()
        (tmp_path / side / "pytest.ini").write_text("[pytest]\n")
        (tmp_path / side / "test_it.py").write_text(SOURCE)
    file = tmp_path / "verdicts.json"
    command = [
        *(sys.executable, "-P", "-c", MAIN, "ab", f"--base={tmp_path / 'base'}"),
        *(
            f"--head={tmp_path / 'head'}",
            "--same",
            "--pairs=5",
            "--unchanged-from=5",
            "--format=json",
        ),
        *(f"--output={file}", "--", "--gpubench-device=cuda", "--measure.profile=quick"),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    verdicts = json.loads(file.read_text())["benchmarks"]
    assert len({verdict["id"] for verdict in verdicts}) == 4
    assert {verdict["verdict"] for verdict in verdicts} <= {"unchanged", "inconclusive"}
