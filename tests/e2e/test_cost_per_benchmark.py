"""What a session holds of the benchmarks it has measured, in every process of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.projects import Project

pytestmark = pytest.mark.own_process

COUNT = 4
TEST = f"""
import pytest

@pytest.mark.gpubench(ranks="any")
@pytest.mark.parametrize("number", range({COUNT}))
def test_it(gpubench, number):
    gpubench(lambda: sum(range(2000)))

@pytest.mark.gpubench(ranks="any")
def test_fails_later(gpubench):
    gpubench(lambda: sum(range(2000)))
    pytest.fail("after it was measured")
"""
CONFTEST = """
import gc, json, os
import pytest
from gpubench_plugin.launchers.context import STATE
from gpubench_plugin.core.records import Measurement, Samples

WALKED = []

@pytest.hookimpl(trylast=True)
def pytest_runtest_setup():
    WALKED.append(len(gc.get_objects()))

@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    gc.unfreeze()
    gc.collect()
    objects = gc.get_objects()
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    reports = [r for of_kind in reporter.stats.values() for r in of_kind if hasattr(r, "nodeid")]
    held = {
        "reports": len([r for r in reports if r.nodeid.startswith("test_it.py")]),
        "with_notes": len([r for r in reports if hasattr(r, "gpubench")]),
        "samples": len([o for o in objects if isinstance(o, Samples)]),
        "durations": len([o for o in objects if isinstance(o, list) and len(o) > 1000
                          and all(isinstance(one, float) for one in o)]),
        "configurations": len({id(i.stash[STATE].case.configuration) for i in session.items}),
        "walked": WALKED,
    }
    with open(f"held-{os.getpid()}.json", "w") as file:
        json.dump(held, file)
"""
STEPS = ("--measure.by=steps", "--measure.steps=1200", "--measure.warmup_s=0.001")


@pytest.mark.parametrize(
    ("ways", "torchrun", "ranks"),
    [
        ((), 0, 0),
        pytest.param(("--world-size=2",), 0, 2, marks=pytest.mark.exhaustive),
        pytest.param((), 2, 2, marks=pytest.mark.exhaustive),
    ],
    ids=["plain", "gang", "torchrun"],
)
def test_samples_are_let_go_once_they_are_recorded(
    project: Project, ways: tuple[str, ...], torchrun: int, ranks: int
) -> None:
    """Beyond pytest-benchmark's thousand durations nothing keeps samples to a session's end.

    Of equal configurations one is kept, too.
    Nor do garbage collections have more to look through with each benchmark, where they are made.
    """
    project.write("test_it.py", TEST)
    project.write("conftest.py", CONFTEST)

    run = project.run(*STEPS, "--benchmark-quiet", *ways, ranks=torchrun, quick=False)

    assert (run.code, set(run.outcomes.values())) == (1, {"measured", "failed"}), run.out + run.err
    held = [json.loads(file.read_text()) for file in project.path.glob("held-*.json")]
    reports = [of_process.pop("reports") for of_process in held]
    assert sorted(reports) == [0] * ranks + [3 * (COUNT + 1)]
    for reported, of_process in zip(reports, held, strict=True):
        walked = of_process.pop("walked")[2:]  # torch is imported in the first
        assert of_process == {"with_notes": 0, "samples": 0, "durations": 0, "configurations": 1}
        measures = not (ranks and reported)
        assert not measures or max(walked) < walked[0] + 500
    benchmark_json = json.loads((run.directory / "benchmark.json").read_text())
    data = [len(benchmark["stats"]["data"]) for benchmark in benchmark_json["benchmarks"]]
    lines = [line for line in run.journal if line["event"] == "benchmark"]
    assert len(data) == COUNT
    assert all(data)
    assert [len(line["samples"]["durations_s"]) for line in lines[:COUNT]] == [1200] * COUNT
