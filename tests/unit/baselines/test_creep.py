"""Creep and steps are judged by the pinned level, whatever later runs say; noise alone is not."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.baselines.model import Reference
from gpubench_plugin.baselines.resolve import Resolver
from gpubench_plugin.baselines.store import Baselines
from gpubench_plugin.compare.comparison import compare_history
from gpubench_plugin.results.reader import RunReader
from gpubench_plugin.results.registry.registry import Registry
from gpubench_plugin.results.run_directory import RunDirectory
from tests.support.exhaustive import shown
from tests.support.runs_builder import MLP, RESNET, run_id, write_run, write_verdicts

if TYPE_CHECKING:
    from pathlib import Path

    from gpubench_plugin.core.verdicts import Comparison

pytestmark = pytest.mark.slow


RUNS = 40
NOISE = 0.005


class Branch:
    """A branch whose every run is judged against the baseline `main`, recorded and stored."""

    def __init__(
        self,
        results: Path,
        *,
        seed: int,
        creep: float = 0.0,
        step: float = 0.0,
        since: int = 0,
        pins: int = 1,
        judges: bool = True,
    ):
        self.results = results
        self._random = random.Random(seed)
        self._creep = creep
        self._step = step
        self._since = since
        self._pins = pins
        self._judges = judges
        self.regressed: list[int] = []

    def go(self, runs: int = RUNS) -> None:
        with Registry.open("", self.results) as registry:
            for number in range(runs):
                self._one(registry, number)

    def _one(self, registry: Registry, number: int) -> None:
        level = 0.010 * (1 + self._creep) ** max(number - self._pins + 1, 0)
        level *= 1 + self._step * (number >= max(self._since, self._pins))
        values = {MLP: level * self._noise(), RESNET: 0.020 * self._noise()}
        directory = write_run(self.results, number, values)
        if number >= self._pins and self._judges:
            found, _ = self.judged(number)
            write_verdicts(directory, found.verdicts)
            if found.count("regressed"):
                self.regressed.append(number)
        registry.ingest(directory)
        if number == self._pins - 1:
            pins = [run_id(pin) for pin in range(self._pins)]
            Baselines(self.results).set("main", pins, branch="main")

    def judged(self, number: int) -> tuple[Comparison, Reference]:
        head = RunReader(RunDirectory.open(self.results / "default" / run_id(number))).run()
        with Resolver("", self.results, self.results) as resolver:
            found = resolver.reference("main", benchmarks=head.results, head=head)
        return compare_history(found.runs, head), found

    def _noise(self) -> float:
        return 1 + self._random.gauss(0, NOISE)


@pytest.mark.parametrize("seed", shown(0, exhaustively=range(3)))
def test_half_a_percent_per_run_is_called_a_regression(tmp_path: Path, seed: int) -> None:
    """Of a creep of 0.5% per run no step can be seen, but the sum can."""
    branch = Branch(tmp_path, seed=seed, creep=0.005)
    branch.go()
    assert branch.regressed[0] < 14  # as soon as ten runs tell the noise

    found, past = branch.judged(RUNS - 1)
    verdicts = {v.id: v for v in found.verdicts if v.metric == "step_time_min_s"}
    assert verdicts[MLP].kind == "regressed"
    assert verdicts[RESNET].kind != "regressed"
    samples = {run.run_id for run in past.runs}
    assert not samples & {run_id(number) for number in branch.regressed}
    assert past.runs[0].run_id == run_id(0)


@pytest.mark.parametrize(
    "case",
    shown(
        (1, True, 1, 0.10),
        (1, False, 1, 0.10),
        (7, False, 10, 0.30),
        exhaustively=[(n, judges, 1, 0.10) for n in (2, 5, 9) for judges in (True, False)],
    ),
)
def test_a_step_does_not_become_the_level(
    tmp_path: Path, case: tuple[int, bool, int, float]
) -> None:
    """Runs that nobody judged, or that were judged too early, tell the noise and nothing else."""
    since, judges, pins, step = case
    branch = Branch(tmp_path, seed=since, step=step, since=since, pins=pins, judges=judges)
    branch.go(25)

    found, _ = branch.judged(24)
    (verdict,) = (v for v in found.verdicts if (v.id, v.metric) == (MLP, "step_time_min_s"))
    assert verdict.kind == "regressed", verdict.reason
    assert verdict.effect == pytest.approx(step, abs=0.03)


@pytest.mark.parametrize("seed", shown(0, exhaustively=range(3)))
def test_noise_alone_is_no_regression(tmp_path: Path, seed: int) -> None:
    """Forty runs of the same code, 0.5% noise between them: none is called slower."""
    branch = Branch(tmp_path, seed=seed, creep=0.0)
    branch.go()
    assert branch.regressed == []


def test_ten_pinned_runs_see_creep_sooner(tmp_path: Path) -> None:
    """Where the noise at the pin is known from ten runs, three to five percent are enough."""
    branch = Branch(tmp_path, seed=103, creep=0.005, pins=10)
    branch.go(22)
    assert branch.regressed
    assert branch.regressed[0] < 20
