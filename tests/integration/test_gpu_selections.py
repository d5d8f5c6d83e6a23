"""What the tests on a GPU select is what they expect: collected here, without a device."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.gpu_selections import SELECTIONS, Selection

REPOSITORY = Path(__file__).parents[2]
GPU_TESTS = Path(__file__).parent / "gpu"


@pytest.mark.parametrize("selection", SELECTIONS.values(), ids=SELECTIONS)
def test_a_selection_holds_what_its_test_unpacks(selection: Selection) -> None:
    """The benchmarks collected for CUDA by the arguments are the expected ones, in order."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "benchmarks", "--device=cuda", *selection.arguments),
            *("--collect-only", "-q", "-p", "no:cacheprovider"),
        ],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    names = [line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line]
    assert tuple(names) == selection.names


def test_tests_on_a_gpu_select_by_these_names_alone() -> None:
    """No test on a GPU states a selection of its own, which nothing would check here."""
    for module in GPU_TESTS.glob("test_*.py"):
        assert '"-k"' not in module.read_text(encoding="utf-8"), module.name
