"""Screens of comparisons: three runs, two runs, and the report of ``gpubench ab``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gpubench_plugin.cli.ab.tracker import Tracker
from gpubench_plugin.compare.comparison import compare_runs
from gpubench_plugin.core.records import Result, Run
from gpubench_plugin.core.verdicts import Comparison
from gpubench_plugin.reports.markup import plain
from gpubench_plugin.reports.verdict_table import verdict_lines
from tests.support.made import result, run
from tests.support.screens import SCREENS, assert_screen

TRAIN = "benchmarks/training/test_resnet18.py::test_resnet18_train"
INFER = "benchmarks/inference/test_resnet18.py::test_resnet18_infer[amp]"
MLP = "benchmarks/training/test_mlp.py::test_mlp_train[amp]"
MATMUL = "benchmarks/micro/test_matmul.py::test_matmul[4096-amp]"
GPT2 = "benchmarks/training/test_gpt2.py::test_gpt2_train[amp]"
SOFTMAX = "benchmarks/micro/test_softmax.py::test_softmax[amp]"
COMPILED, EAGER, CONTIGUOUS = (
    f"{TRAIN}[{variant}-amp]" for variant in ("channels_last-compiled", "channels_last", "nchw")
)
TIMES = {COMPILED: 12.1e-3, EAGER: 14.2e-3, CONTIGUOUS: 15.4e-3, INFER: 4.4e-3, MLP: 357.1e-6}
TIMES |= {MATMUL: 84.4e-6}
"""Step times of the base in seconds."""


def measured(name: str, seconds: float, memory: float, flags: tuple[str, ...] = ()) -> Result:
    """A benchmark of batch 32 on a host clock."""
    one = result(
        name,
        units={"samples_per_s": "samples/s"},
        step_time_s=seconds * 1.02,
        step_time_min_s=seconds,
        samples_per_s=32 / seconds / 1.05,
        peak_memory_bytes=memory,
    )
    return replace(one, flags=flags)


def recorded(
    label: str,
    factors: Mapping[str, float],
    *others: Result,
    without: str = "",
    flags: Mapping[str, tuple[str, ...]] = {},
    memory: Mapping[str, float] = {},
    **facts: Any,
) -> Run:
    """A run whose benchmarks take their time in the base by a factor."""
    results = [
        measured(
            name, seconds * factors.get(name, 1.0), memory.get(name, 900e6), flags.get(name, ())
        )
        for name, seconds in TIMES.items()
        if name != without
    ]
    return run(label, *results, *others, environment=facts)


def three_runs() -> list[Comparison]:
    """A base and two heads: one slower and doubtful, one with a failure and other benchmarks."""
    doubtful = ("contended",)
    base = recorded("20261122T033112Z_nightly_1a2b3c", {}, **{"torch.version": "2.12.0"})
    slower = recorded(
        "20261122T041500Z_run_77aa01",
        {COMPILED: 1.382, MLP: 0.93, INFER: 1.004},
        flags=dict.fromkeys((COMPILED, MLP, INFER), doubtful),
        memory={COMPILED: 1.1e9},
        **{"torch.version": "2.13.0"},
    )
    reason = "RuntimeError: CUDA error: an illegal memory access was encountered"
    other = recorded(
        "20261123T091200Z_run_9c0d44",
        {COMPILED: 1.012, MATMUL: 1.17},
        measured(GPT2, 33e-3, 2e9),
        result(SOFTMAX, outcome="failed", reason=reason),
        without=CONTIGUOUS,
        **{"torch.version": "2.13.0"},
    )
    return [compare_runs(base, head) for head in (slower, other)]


def ab() -> Comparison:
    """Fifteen pairs: a regression, one unchanged, one near its limit, and one too noisy."""
    noise = Random(5)
    effects = {COMPILED: (1.05, 0.004), EAGER: (1.0, 0.003), INFER: (1.012, 0.02), MLP: (1.3, 0.6)}

    def launch(label: str, *, is_head: bool) -> Run:
        results = []
        for name, (factor, spread) in effects.items():
            loud = noise.lognormvariate(0.0, spread)
            seconds = TIMES[name] * loud * (factor if is_head else 1.0)
            results.append(measured(name, seconds, 900e6))
        return run(label, *results, environment={"git.branch": "work" if is_head else "main"})

    labels = "main (3f9c2a1b7)", "working tree (2 changed files)"
    pairs = [[launch(label, is_head=bool(side)) for side, label in enumerate(labels)]
             for _ in range(15)]  # fmt: skip
    tracker = Tracker(*pairs[0])
    for looked in (5, 10, 15):
        bases, heads = zip(*pairs[:looked], strict=True)
        tracker.judge(bases, heads)
    return tracker.comparison("32 launches, interleaved from seed 1234567")


@pytest.mark.parametrize("width", [80, 120, 200])
def test_screens_of_comparisons(width: int) -> None:
    """Base and changes are on every screen, names differ, and a shared doubt is said once."""
    runs = three_runs()
    screens = {"compare-3-runs": runs, "compare-2-runs": runs[:1], "ab": [ab()]}
    for name, comparisons in screens.items():
        text = "".join(f"{plain(line)}\n" for line in verdict_lines(comparisons, width))
        assert_screen(f"{name}-{width}", text)


@pytest.mark.parametrize(("name", "page"), [("compare-3-runs-80", "compare"), ("ab-80", "ab")])
def test_the_guides_show_what_is_printed(name: str, page: str) -> None:
    """A screen that changes has to be copied into its page."""
    guide = Path(__file__).parents[3] / "docs" / "guide" / f"{page}.md"
    assert (SCREENS / f"{name}.txt").read_text("utf-8") in guide.read_text("utf-8")
