"""Whatever happens to nodes and shards: every benchmark ends as it should, and none is lost."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.support.processes import processes_with
from tests.support.toy_engine.toy_engine import PLAN, Fault, Kind, Plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.projects import Project

TOY: Final = Path(__file__).parents[1] / "support/toy_engine"
NODES: Final = 3
SUITE: Final = """
import os, signal, time
import pytest

@pytest.mark.parametrize("n", range(12))
@pytest.mark.gpubench(exclusive=False, timeout_s=3)
def test_step(gpubench, n):
    if os.environ.get("HANGS") == str(n):
        time.sleep(100)
    if os.environ.get("DIES") == str(n):
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.3)
    gpubench(lambda: time.sleep(0.001))
"""
KINDS: Final[tuple[Kind, ...]] = ("lost", "crashed", "preempted", "limited", "full", "requeued")
ENDS: Final = {"lost", "ended", "preempted", "limited", "cancelled"}
"""What the toy logs of a job that is over."""


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy engine is installed, for sessions in this process."""
    monkeypatch.syspath_prepend(TOY)


def drawn(seed: int, log: Path) -> Plan:
    """A round's nodes, faults and benchmarks that hang or die."""
    draw = random.Random(seed)
    starts = draw.sample(range(7), 5)
    kinds = [draw.choice(KINDS) for _ in starts]
    if draw.random() < 0.3:
        kinds[-1] = "cancelled"
    faults = tuple(
        Fault(
            kind=kind,
            start=start,
            tests=draw.choice([0, 1, 1, 2, 2, 3]) if kind in {"lost", "preempted"} else 1,
            after_s=draw.uniform(3, 5) if kind == "limited" else draw.uniform(0, 0.5),
            bytes=draw.choice([100, 3000]),
        )
        for kind, start in zip(kinds, starts, strict=True)
    )
    hangs, dies = draw.sample(range(24), 2)  # half of them are none
    own = {name: str(n) for name, n in (("HANGS", hangs), ("DIES", dies)) if n < 12}
    return Plan(
        faults=faults,
        shared=draw.random() < 0.5,
        seed=seed,
        sick_s=draw.choice([0.0, 1.0, 3.0]),
        environ=own,
        log=str(log),
    )


def expected(plan: Plan, events: list[dict[str, Any]]) -> dict[str, str]:
    """Outcomes by what has happened: crashed is what ran in a process that ended unexpectedly.

    On a full disk it ends as interrupted, and the test begins again.
    """
    outcomes = {f"test_it.py::test_step[{n}]": "measured" for n in range(12)}
    if "HANGS" in plan.environ:
        outcomes[f"test_it.py::test_step[{plan.environ['HANGS']}]"] = "hang"
    for event in events:
        running = event["running"]
        is_interrupted = event["code"] == pytest.ExitCode.INTERRUPTED
        if event["what"] == "ended" and running and not (event["is_recorded"] or is_interrupted):
            outcomes[running] = "crashed"
        if event["what"] == "cancelled":
            outcomes |= dict.fromkeys(event["left"], "not_measured")
    return outcomes


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_round_of_faults(project: Project, seed: int) -> None:
    """Outcomes, records, status and exit code are right, no process is left, and all is well."""
    project.write("test_it.py", SUITE)
    log = project.path / "log"
    plan = drawn(seed, log)
    env = plan.write(project.path / "plan.json")
    ended = project.run(f"--on=toy:{NODES}", "--engine.retries=6", env=env)

    story = f"{plan}\n{log.read_text()}\n{ended.out}{ended.err}"
    events = [json.loads(line) for line in log.read_text().splitlines()]
    outcomes = expected(plan, events)
    assert {b["id"]: b["outcome"] for b in ended.summary["benchmarks"]} == outcomes, story
    recorded = Counter(line["id"] for line in ended.journal if line["event"] == "benchmark")
    wanted = [i for i, outcome in outcomes.items() if outcome != "not_measured"]
    assert recorded == Counter(wanted), story
    bad = {*outcomes.values()} - {"measured"}
    code, status = (1, "failed") if bad else (0, "complete")
    if "not_measured" in bad:
        code, status = 2, "interrupted"
    assert (ended.code, ended.summary["status"]) == (code, status), story
    assert "INTERNALERROR" not in ended.out + ended.err, story
    assert not processes_with(f"{PLAN}={env[PLAN]}"), story
    for before, after in pairs_by_shard(events):
        assert before["what"] != "lost" or after["node"] != before["node"] or before["avoid"], story

    again = [f"--resume={ended.directory.name}"] if code == 2 else []
    well = project.run(f"--on=toy:{NODES}", *again)
    assert well.code == 0 or "failed" in well.out, well.out + well.err
    summary = json.loads((well.directories[-1] / "summary.json").read_text())
    assert {b["outcome"] for b in summary["benchmarks"]} == {"measured"}, well.out + well.err


def pairs_by_shard(events: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each end of a job, and the start of the job that takes over what it has left."""
    for number, event in enumerate(events):
        if event["what"] in ENDS:
            for later in events[number:]:
                if later["what"] == "started" and later["left"] == event["left"]:
                    yield event, later
                    break
