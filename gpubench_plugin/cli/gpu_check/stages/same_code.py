"""``gpubench ab`` on two copies of the same code: nothing may have changed."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.environment import json_files

if TYPE_CHECKING:
    from gpubench_plugin.cli.gpu_check.stage import StageRun

SOURCE: Final = """
import time
import pytest, torch

pytestmark = pytest.mark.gpubench

def spin():
    end = time.perf_counter() + 1e-3
    while time.perf_counter() < end:
        pass

def test_spin(gpubench):
    gpubench(spin)

@pytest.mark.parametrize("size", {sizes})
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
_CHANGES: Final = ("regressed", "improved")
_MAIN: Final = "import sys; from gpubench_plugin.cli.main import main; sys.exit(main())"


def same_code(run: StageRun, *, sizes: tuple[int, ...] = (512, 4096)) -> None:
    """Compare two equal folders in five pairs of launches."""
    sides = [run.project(name, SOURCE.format(sizes=sizes)) for name in ("base", "head")]
    command = [
        *(sys.executable, "-P", "-c", _MAIN, "ab", f"--base={sides[0]}", f"--head={sides[1]}"),
        *("--pairs=5", "--format=json", "--", f"--gpubench-device={run.device}"),
        "--gpubench-set=measure.profile=quick",
    ]
    code = run.execute("ab", command, cwd=run.folder)
    check_verdicts(run, code, run.output("ab").read_bytes())


def check_verdicts(run: StageRun, code: int | None, output: bytes) -> None:
    """Judge the verdicts that the command printed as JSON, after its messages."""
    run.check("exit code", code, "equal", 0)
    start = output.find(b"\n{\n") + 1
    document: dict[str, Any] = (
        json_files.parse(output[start:], "the verdicts") if b"{" in output else {}
    )
    rows = document.get("benchmarks", [])
    kinds = Counter(row["verdict"] for row in rows)
    run.fact(verdicts=dict(kinds), effects={r["id"]: r["effect"] for r in rows})
    run.check("benchmarks that were compared", len(rows), "at_least", 1)
    changed = sum(kinds[kind] for kind in _CHANGES)
    run.check("benchmarks called changed", changed, "equal", 0)
    run.check(
        "benchmarks without a verdict",
        len(rows) - changed - kinds["unchanged"] - kinds["inconclusive"],
        "equal",
        0,
    )
