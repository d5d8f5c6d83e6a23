"""Shards on a real SLURM: two nodes on this machine, of Debian's packages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep, time
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.config.sections import EngineSection
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.engines.base import DEADLINE, FOLDER, OUTPUT, JobStatus, Shard
from gpubench_plugin.engines.slurm import Slurm
from tests.support.processes import wait_until
from tests.support.slurm.cluster import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

__all__ = ["cluster"]  # a fixture

TEST = """
import json, os, signal, time

NAMES = ("GPUBENCH_SHARD", "GPUBENCH_SHARD_DEADLINE", "SLURMD_NODENAME", "RANK", "WORLD_SIZE")


def asked_to_end(*_):
    print("asked to end", flush=True)
    if not {stays}:
        os._exit(2)


def test_it():
    signal.signal(signal.SIGTERM, asked_to_end)
    facts = {{name: os.environ.get(name) for name in NAMES}}
    line = "facts " + json.dumps({{**facts, "cwd": os.getcwd()}})
    os.write(1, f"\\n{{line}}\\n".encode())  # at once: ranks write into one file
    until = time.monotonic() + {seconds}
    while time.monotonic() < until:
        time.sleep(0.1)
    assert {passes}
"""


@pytest.fixture
def new_shard(tmp_path: Path) -> Callable[..., Shard]:
    """A function that makes a shard, whose session has one short test and no GPU benchmark."""
    root = tmp_path / "a run: 100% of $it"
    root.mkdir()
    (root / "pytest.ini").write_text("[pytest]\n")

    def new(seconds: float = 0, *, passes: bool = True, stays: bool = False) -> Shard:
        number = str(1 + sum(1 for _ in root.glob("shards/*")))
        folder = root / "shards" / number
        folder.mkdir(parents=True)
        test = root / f"test_{number}.py"
        test.write_text(TEST.format(seconds=seconds, passes=passes, stays=stays))
        plain = ("-sq", "-p", "no:gpubench", "-p", "no:cacheprovider", "-c", "pytest.ini")
        arguments = (*plain, test.name)
        return Shard(folder=folder, arguments=arguments, rootdir=root, cwd=root)

    return new


def engine(target: str = "", **section: Any) -> Slurm:
    """The engine with this configuration."""
    return Slurm(target, EngineSection.model_validate(section))


def facts_of(shard: Shard) -> list[dict[str, Any]]:
    """What the sessions of a shard have printed, each of its starts."""
    output = shard.folder / OUTPUT
    lines = output.read_text().splitlines() if output.exists() else []
    return [json.loads(line[6:]) for line in lines if line.startswith("facts ")]


def wait_for(
    slurm: Slurm,
    jobs: Collection[str],
    holds: Callable[[list[JobStatus]], bool],
    within_s: float = 30,
) -> list[JobStatus]:
    """Poll until it `holds` for the statuses."""
    deadline = monotonic() + within_s
    while not holds(statuses := [*slurm.poll(jobs).values()]):
        assert monotonic() < deadline, statuses
        sleep(0.25)
    return statuses


def are_over(statuses: list[JobStatus]) -> bool:
    """Whether none waits or runs."""
    return all(status.state not in {"queued", "running"} for status in statuses)


def have(*states: str) -> Callable[[list[JobStatus]], bool]:
    """Whether these are the states."""
    return lambda statuses: [status.state for status in statuses] == [*states]


@pytest.mark.long
def test_shards_run_wait_and_are_cancelled(
    cluster: Cluster, new_shard: Callable[..., Shard]
) -> None:
    """Three shards on two nodes, one at a time on each; then one of two is cancelled."""
    slurm, start_s = engine(), time()
    assert (slurm.describe().slots, slurm.outlives_session) == (2, True)
    shards = [new_shard(2), new_shard(2), new_shard(0, passes=False)]

    jobs = slurm.submit(shards)
    reason = "no node is free (Resources)"
    waiting = wait_for(slurm, jobs, lambda statuses: statuses[2].reason == reason)
    statuses = wait_for(engine(), jobs, are_over)  # as a session does that resumes the run

    assert have("running", "running", "queued")(waiting)
    assert [status.code for status in statuses] == [0, 0, 1]
    assert {status.node for status in statuses[:2]} == {"n1", "n2"}
    for shard, status in zip(shards, statuses, strict=True):
        (facts,) = facts_of(shard)
        assert facts[FOLDER] == str(shard.folder)
        assert facts["SLURMD_NODENAME"] == status.node
        assert facts["cwd"] == str(shard.cwd)
        assert 3400 < float(facts[DEADLINE]) - start_s < 3700  # the partition's limit is an hour

    shards = [new_shard(60), new_shard(60)]
    jobs = slurm.submit(shards)
    wait_for(slurm, jobs, have("running", "running"))
    wait_until(lambda: all(map(facts_of, shards)))
    slurm.cancel(jobs[:1])
    wait_for(slurm, jobs, have("cancelled", "running"))
    slurm.cancel(jobs)
    wait_for(slurm, jobs, have("cancelled", "cancelled"))
    assert all("asked to end" in (s.folder / OUTPUT).read_text() for s in shards)


@pytest.mark.long
def test_refusals_and_reasons(cluster: Cluster, new_shard: Callable[..., Shard]) -> None:
    """What SLURM refuses is one line; what it queues for good says why."""
    with pytest.raises(UsageProblem, match=r"'hihg' \(did you mean 'high'"):
        engine("hihg").describe()
    for section, match in (
        ({"gres": "gpu:8"}, r"Invalid generic resource .*\(--gres=gpu:8\)"),
        ({"arguments": ("--constraint=h100",)}, r"feature specification \(--constraint=h100\)"),
    ):
        with pytest.raises(UsageProblem, match=match) as refusal:
            engine(slurm=section).submit([new_shard()])
        assert "\n" not in str(refusal.value)

    def reason(slurm: Slurm, word: str) -> str:
        jobs = slurm.submit([new_shard()])
        (status,) = wait_for(slurm, jobs, lambda statuses: word in statuses[0].reason)
        slurm.cancel(jobs)
        assert status.state == "queued"
        return status.reason

    assert "engine.slurm.time" in reason(engine(slurm={"time": "999"}), "PartitionTimeLimit")
    drain = ["scontrol", "update", "nodename=n1", "state=drain", "reason=broken"]
    subprocess.run(drain, check=True)
    wait_until(lambda: engine().describe().text.endswith(": 1 nodes idle, 1 drained"))
    assert engine().describe().slots == 1
    assert reason(engine(nodes=2), "DRAINED")
    avoiding = Shard(**{**vars(new_shard()), "avoid": frozenset({"n1", "n2"})})
    assert wait_for(slurm := engine(), slurm.submit([avoiding]), are_over)[0].code == 0


@pytest.mark.long
def test_lost_node(cluster: Cluster, new_shard: Callable[..., Shard]) -> None:
    """A session whose node fails is requeued, and starts again in the same job and folder."""
    slurm, shards = engine(), [new_shard(20), new_shard(1)]
    jobs = slurm.submit(shards)
    statuses = wait_for(slurm, jobs, have("running", "ended"))
    wait_until(lambda: facts_of(shards[0]))

    cluster.fail(statuses[0].node)
    reason = "requeued: pause after preemption or a node failure (BeginTime)"
    waiting = wait_for(slurm, jobs, lambda statuses: statuses[0].reason == reason, within_s=90)
    ended = wait_for(slurm, jobs, are_over, within_s=240)[0]

    assert have("queued", "ended")(waiting)
    assert (ended.state, ended.code) == ("ended", 0)
    assert ended.node != statuses[0].node
    assert [f["SLURMD_NODENAME"] for f in facts_of(shards[0])] == [statuses[0].node, ended.node]
    assert "1 silent" in slurm.describe().text or "1 down" in slurm.describe().text


@pytest.mark.long
def test_preemption(cluster: Cluster, new_shard: Callable[..., Shard]) -> None:
    """A job of a higher partition ends a session by SIGTERM; SLURM queues it again."""
    low, shards = engine("low"), [new_shard(60), new_shard(60)]
    jobs = low.submit(shards)
    wait_for(low, jobs, have("running", "running"))
    wait_until(lambda: all(map(facts_of, shards)))

    high = engine("high")
    assert wait_for(high, high.submit([new_shard()]), are_over)[0].code == 0

    reason = "requeued: pause after preemption or a node failure (BeginTime)"
    statuses = wait_for(low, jobs, lambda statuses: any(s.reason == reason for s in statuses))
    assert sorted(status.state for status in statuses) == ["queued", "running"]
    assert any("asked to end" in (shard.folder / OUTPUT).read_text() for shard in shards)
    low.cancel(jobs)
    wait_for(low, jobs, have("cancelled", "cancelled"))


@pytest.mark.long
def test_time_limit(cluster: Cluster, new_shard: Callable[..., Shard]) -> None:
    """A session gets SIGTERM before the limit, which ends it if it does not end by itself."""
    slurm, shards = engine(slurm={"time": "1"}), [new_shard(300), new_shard(300, stays=True)]

    statuses = wait_for(slurm, slurm.submit(shards), are_over, within_s=150)

    assert [status.state for status in statuses] == ["ended", "cut"]
    assert statuses[0].code == 2
    assert statuses[1].reason == "the time limit of the job, engine.slurm.time (TIMEOUT)"
    assert all("asked to end" in (shard.folder / OUTPUT).read_text() for shard in shards)


@pytest.mark.long
def test_controller_that_is_restarted(cluster: Cluster, new_shard: Callable[..., Shard]) -> None:
    """What runs goes on, and is known again afterwards."""
    slurm, shard = engine(), new_shard(15)
    jobs = slurm.submit([shard])
    wait_until(lambda: facts_of(shard))

    cluster.stop_controller()
    with pytest.raises(UsageProblem, match="--on=slurm: squeue: slurm_load_jobs error"):
        slurm.poll(jobs)
    cluster.start_controller()

    assert wait_for(slurm, jobs, are_over, within_s=60)[0].code == 0


@pytest.mark.long
def test_several_nodes(cluster: Cluster, new_shard: Callable[..., Shard]) -> None:
    """Torchrun starts the ranks of a shard on its nodes, which meet."""
    slurm, shard = engine(nodes=2, ranks_per_node=2), new_shard()
    assert slurm.describe().slots == 1

    (status,) = wait_for(slurm, slurm.submit([shard]), are_over, within_s=90)

    assert (status.code, status.node) == (0, "n[1-2]")
    facts = facts_of(shard)
    assert {(f["RANK"], f["WORLD_SIZE"]) for f in facts} == {(r, "4") for r in "0123"}
    assert {f["SLURMD_NODENAME"] for f in facts} == {"n1", "n2"}
    assert {f[FOLDER] for f in facts} == {str(shard.folder)}


def in_allocation(folder: Path) -> Mapping[str, Any]:
    """Run shards as steps; what a session inside an allocation sees."""
    shards = []
    for file in sorted(folder.glob("shards/*/arguments.json")):
        arguments = tuple(json.loads(file.read_text()))
        places: dict[str, Any] = {"folder": file.parent, "cwd": folder, "rootdir": folder}
        shards.append(Shard(arguments=arguments, **places))
    slurm, later = engine(), engine()
    jobs = slurm.submit(shards)
    first = [vars(status) for status in slurm.poll(jobs).values()]
    wait_until(lambda: all(map(facts_of, shards[:2])))
    known = [status.state for status in later.poll(jobs[:2]).values()]
    slurm.cancel(jobs[:1])
    last = [vars(status) for status in wait_for(slurm, jobs, are_over)]
    return {"text": slurm.describe().text, "first": first, "known": known, "last": last}


@pytest.mark.long
def test_inside_an_allocation(
    cluster: Cluster, new_shard: Callable[..., Shard], tmp_path: Path
) -> None:
    """Shards are steps, one on each node, known to a later session too; the others wait."""
    shards = [new_shard(60), new_shard(4), new_shard(1)]
    for shard in shards:
        (shard.folder / "arguments.json").write_text(json.dumps(shard.arguments))
    code = (
        "import json, pathlib, sys; from tests.e2e.test_slurm import in_allocation;"
        f"print(json.dumps(in_allocation(pathlib.Path({str(shards[0].cwd)!r}))))"
    )

    done = subprocess.run(
        ["salloc", "--quiet", "--nodes=2", "--exclusive", sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["text"].endswith(": 2 nodes")
    assert [status["state"] for status in seen["first"]] == ["running", "running", "queued"]
    assert {status["node"] for status in seen["first"][:2]} == {"n1", "n2"}
    assert seen["first"][2]["reason"] == "no node is free"
    assert seen["known"] == ["running", "running"]
    assert [status["code"] for status in seen["last"]] == [2, 0, 0]
    assert seen["last"][2]["node"] == seen["last"][0]["node"]  # which the cancelled one left
    assert len(facts_of(shards[2])) == 1
