"""``gpubench ab`` on two copies of the same code: nothing may have changed."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Final

from gpubench_plugin.results import verdicts

if TYPE_CHECKING:
    from pathlib import Path

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
_MAIN: Final = "import sys; from gpubench_plugin.cli.main import main; sys.exit(main())"


def same_code(run: StageRun, *, sizes: tuple[int, ...] = (512, 4096)) -> None:
    """Compare two equal folders in five pairs of launches."""
    sides = [run.project(name, SOURCE.format(sizes=sizes)) for name in ("base", "head")]
    file = run.folder / "verdicts.json"
    command = [
        *(sys.executable, "-P", "-c", _MAIN, "ab", f"--base={sides[0]}", f"--head={sides[1]}"),
        *("--pairs=5", "--unchanged-from=5", "--format=json", f"--output={file}"),
        *("--", f"--gpubench-device={run.device}", "--gpubench-set=measure.profile=quick"),
    ]
    code = run.execute("ab", command, cwd=run.folder)
    check_verdicts(run, code, file, tests=2 + len(sizes))


def check_verdicts(run: StageRun, code: int | None, file: Path, *, tests: int) -> None:
    """Judge the verdicts on `tests` in a file that ``gpubench ab`` wrote, if it did."""
    benchmarks = verdicts.read(file).benchmarks if file.exists() else ()
    kinds = Counter(verdict.kind for verdict in benchmarks)
    run.fact(verdicts=dict(kinds), effects={v.id: v.effect for v in benchmarks})
    run.check("exit code", code, "equal", 0)
    run.check("benchmarks that were compared", len({v.id for v in benchmarks}), "equal", tests)
    changed = kinds["regressed"] + kinds["improved"]
    run.check("benchmarks called changed", changed, "equal", 0)
    others = len(benchmarks) - changed - kinds["unchanged"] - kinds["inconclusive"]
    run.check("benchmarks without a verdict", others, "equal", 0)
    if benchmarks and not kinds["unchanged"]:
        run.unproven("gpubench ab calls equal code unchanged (all verdicts are inconclusive)")
