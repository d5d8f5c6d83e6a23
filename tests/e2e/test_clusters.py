"""Sessions on a real SLURM and a real Ray: whatever happens, one run with every outcome right."""

from __future__ import annotations

import json
import signal
import subprocess
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.e2e.test_ray import needs_ray, observe, short_tmp
from tests.support.cluster_suite import COUNT, ENDED, MEASURED, SUITE
from tests.support.processes import wait_until
from tests.support.slurm.cluster import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.support.projects import Project, Run

__all__ = ["cluster", "short_tmp"]  # fixtures

ON: Final = ("--on=slurm", "-k", "test_step", "--engine.slurm.time=10")


@pytest.fixture
def suite(project: Project) -> Project:
    """The project with the suite."""
    project.write("test_it.py", SUITE)
    project.write("sleep_s", "0")
    return project


class Session:
    """A session that has been started in the project, with steps after so many seconds."""

    def __init__(self, project: Project, *arguments: str, sleep_s: float = 3):
        self._project = project
        project.write("sleep_s", str(sleep_s))
        self.process = project.start(*arguments)

    def wait_for(self, count: int) -> None:
        """Until so many benchmarks are recorded."""
        wait_until(lambda: self._recorded() >= count, 120)

    def _recorded(self) -> int:
        journals = self._project.path.glob("results/*/*/metrics.jsonl")
        return sum(journal.read_text().count('"event": "benchmark"') for journal in journals)

    def end(self, code: int, within_s: float = 120) -> str:
        """What it has printed, once it has ended with that code."""
        out, err = self.process.communicate(timeout=within_s)
        assert self.process.returncode == code, out + err
        return out


def summary_of(project: Project, *, left: str = "shards") -> dict[str, Any]:
    """Outcomes by name in the only run of the project, of whose shards nothing is `left`."""
    (path,) = project.path.glob("results/*/*/summary.json")
    assert not [*path.parent.glob(left)]
    summary = json.loads(path.read_text())
    assert summary["status"] == "complete"
    return {b["name"]: b["outcome"] for b in summary["benchmarks"]}


def test_slurm(cluster: Cluster, suite: Project) -> None:
    """Two nodes measure one run, in which a shard crashes and one hangs."""
    ended: Run = suite.run("--on=slurm", "--engine.slurm.time=10")

    assert ended.code == 1, ended.out + ended.err
    assert {b["name"]: b["outcome"] for b in ended.summary["benchmarks"]} == ENDED
    assert {b["shard"] for b in ended.summary["benchmarks"]} >= {"1", "2"}
    assert ended.summary["status"] == "failed"


@pytest.mark.long
def test_slurm_loses_a_node(cluster: Cluster, suite: Project) -> None:
    """Its shard goes on elsewhere, where SLURM has queued it again."""
    session = Session(suite, *ON)
    session.wait_for(2)
    cluster.fail("n1")
    session.end(0, within_s=400)
    assert summary_of(suite) == MEASURED


@pytest.mark.long
def test_slurm_preempts_a_shard(cluster: Cluster, suite: Project) -> None:
    """Jobs of a higher partition end both shards, which go on afterwards."""
    session = Session(suite, *ON)
    session.wait_for(2)
    high = ["sbatch", "--partition=high", "--exclusive", "--nodes=2", "--wrap=sleep 2"]
    subprocess.run(high, check=True, cwd=suite.path, stdout=subprocess.DEVNULL)
    session.end(0, within_s=400)
    assert summary_of(suite) == MEASURED


@pytest.mark.long
def test_slurm_reaches_the_time_limit(cluster: Cluster, suite: Project) -> None:
    """No benchmark begins that the limit would cut, and the rest is submitted again."""
    limited = ("--on=slurm", "-k", "test_step", "--engine.slurm.time=2", "--engine.shards=1")
    Session(suite, *limited, sleep_s=12).end(0, within_s=500)
    assert summary_of(suite) == MEASURED


@pytest.mark.long
def test_slurm_cancels_a_shard(cluster: Cluster, suite: Project) -> None:
    """The session tells it, and measures the rest when it is resumed."""
    session = Session(suite, *ON)
    session.wait_for(2)
    queue = ["squeue", "--noheader", "--array", "--format=%i"]
    job = subprocess.run(queue, check=True, capture_output=True, text=True).stdout.split()[0]
    subprocess.run(["scancel", job], check=True)
    assert "shard 1 was cancelled: CANCELLED" in session.end(2)
    Session(suite, *ON, "--resume=last").end(0)
    assert summary_of(suite) == MEASURED


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_slurm_goes_on_without_the_session(
    cluster: Cluster, suite: Project, number: signal.Signals
) -> None:
    """The jobs measure all; the session that resumes the run collects it."""
    session = Session(suite, *ON)
    session.wait_for(2)
    session.process.send_signal(number)
    session.process.communicate(timeout=60)

    def is_idle() -> bool:
        listing = ["squeue", "--noheader"]
        return not subprocess.run(listing, check=True, capture_output=True).stdout

    wait_until(is_idle, 120)
    out = Session(suite, *ON, "--resume=last", sleep_s=1000).end(0)
    assert summary_of(suite) == MEASURED, out


@pytest.mark.long
def test_slurm_fills_the_disk(cluster: Cluster, suite: Project) -> None:
    """All share it: the session ends with one line, and measures the rest when it is resumed."""
    disk = suite.path / "results"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(disk)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount")
    try:
        session = Session(suite, *ON)
        session.wait_for(2)
        with suppress(OSError), (disk / "large").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        out, err = session.process.communicate(timeout=200)
        assert session.process.returncode in {1, 2}, out + err
        assert "No space left on device" in out
        (disk / "large").unlink()
        Session(suite, *ON, "--resume=last").end(0)
        assert summary_of(suite, left="shards/*/request.json") == MEASURED
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.mark.long
def test_slurm_has_two_users(cluster: Cluster, tmp_path: Path, project: Project) -> None:
    """No two benchmarks run on one node at a time."""
    from tests.support.projects import Project as Own

    projects = [project, Own(tmp_path / "other")]
    for each in projects:
        each.write("test_it.py", SUITE)
    sessions = [Session(each, *ON, sleep_s=1) for each in projects]
    for session in sessions:
        session.end(0, within_s=300)
    assert [summary_of(each) for each in projects] == [MEASURED, MEASURED]
    journals = [next(each.path.glob("results/*/*/metrics.jsonl")) for each in projects]
    assert_apart([map(json.loads, journal.read_text().splitlines()) for journal in journals])


def assert_apart(journals: Iterable[Iterable[Any]]) -> None:
    """No two benchmarks of two runs were on one node at a time."""
    spans = sorted(span for journal in journals for span in spans_of(journal))
    assert len(spans) == 2 * COUNT
    for (node, _, end), (other, begin, _) in pairwise(spans):
        assert node != other or end <= begin


def spans_of(journal: Iterable[Any]) -> Iterator[tuple[str, str, str]]:
    """Node, begin and last event of each benchmark in a run, by the node's clock."""
    begun: dict[str, tuple[str, str]] = {}
    last: dict[str, str] = {}
    for line in journal:
        if line["event"] == "benchmark":
            yield *begun[line["id"]], last[line["id"]]
        elif benchmark := line.get("benchmark"):
            last[benchmark] = line["time"]
            if line["event"] == "phase" and line["phase"] == "build":
                begun[benchmark] = line["node"], line["time"]


@needs_ray
def test_ray(tmp_path: Path, short_tmp: str) -> None:
    """Two nodes measure one run, in which a shard crashes and one hangs."""
    seen = observe("session", tmp_path, short_tmp)
    assert (seen["code"], seen["outcomes"]) == (1, ENDED), seen["output"]
    assert len(seen["nodes"]) == 2


@needs_ray
@pytest.mark.long
def test_ray_loses_a_node(tmp_path: Path, short_tmp: str) -> None:
    """Its shard goes on elsewhere, and what it has measured is kept."""
    seen = observe("session_lost", tmp_path, short_tmp)
    assert (seen["code"], seen["outcomes"]) == (0, MEASURED), seen["output"]
    assert seen["left"] == 0


@needs_ray
@pytest.mark.long
@pytest.mark.parametrize("scenario", ["session_killed", "session_interrupted"])
def test_ray_loses_the_session(tmp_path: Path, short_tmp: str, scenario: str) -> None:
    """The tasks end with it; the session that resumes the run measures the rest."""
    seen = observe(scenario, tmp_path, short_tmp)
    assert (seen["code"], seen["outcomes"]) == (0, MEASURED), seen["output"]
    assert seen["first_code"] == (2 if scenario == "session_interrupted" else -signal.SIGKILL)
    assert 0 < seen["kept"] < COUNT
    assert seen["left"] == 0


@needs_ray
@pytest.mark.long
def test_ray_fills_a_disk(tmp_path: Path, short_tmp: str) -> None:
    """What ran there begins again elsewhere, as the others of its shard do."""
    seen = observe("session_full", tmp_path, short_tmp)
    assert (seen["code"], seen["outcomes"]) == (0, MEASURED), seen["output"]
    assert seen["ran_there"]
    assert seen["left"] == 0


@needs_ray
@pytest.mark.long
def test_ray_has_two_users(tmp_path: Path, short_tmp: str) -> None:
    """No two benchmarks run on one node at a time."""
    seen = observe("session_two", tmp_path, short_tmp)
    assert (seen["codes"], seen["outcomes"]) == ([0, 0], [MEASURED, MEASURED])
    assert_apart(seen["journals"])
