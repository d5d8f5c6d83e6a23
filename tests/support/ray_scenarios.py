"""What the engine does on a Ray cluster of two nodes and a head without any, as a program.

``python -m tests.support.ray_scenarios SCENARIO FOLDER`` prints what was observed as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import psutil

from gpubench_plugin.config.sections import EngineSection
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.engines.base import JobStatus, Shard
from gpubench_plugin.engines.ray import Ray
from tests.support.cluster_suite import SUITE
from tests.support.processes import processes_with, wait_until

SESSION = """
import json, os, pathlib, subprocess, sys, time

def test_lines():
    folder = pathlib.Path(os.environ["GPUBENCH_SHARD"])
    request = json.loads((folder / "request.json").read_text())
    (folder / "results" / "ranks").mkdir(parents=True, exist_ok=True)
    rank = os.environ.get("RANK", "0")
    (folder / "results" / "ranks" / f"{rank}.bin").write_bytes(bytes(200_000))
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    for number in range(request["lines"]):
        with (folder / "reports.jsonl").open("a") as file:
            world, threads = map(os.environ.get, ("WORLD_SIZE", "OMP_NUM_THREADS"))
            facts = {"line": number, "rank": rank, "world": world, "threads": threads}
            file.write(json.dumps(facts | {"cwd": os.getcwd()}) + "\\n")
        time.sleep(0.1)
    child.kill()
    assert not request.get("fails")
"""


LISTING = """
def test_listing():
    top = pathlib.Path.cwd().parent
    names = sorted(p.relative_to(top).as_posix() for p in top.rglob("*") if p.is_file())
    listing = pathlib.Path(os.environ["GPUBENCH_SHARD"]) / "listing.json"
    listing.write_text(json.dumps([n for n in names if not n.endswith(".pyc")]))
"""
MARK = "RAY_SCENARIO"
NODE = {"num_cpus": 1, "resources": {"bench": 1}, "object_store_memory": 100 << 20}


class Suite:
    """Shards of a project below `folder` on the engine of `target`."""

    def __init__(self, folder: Path, target: str, **section: Any):
        self.folder = folder
        self.project = folder / "project"
        (self.project / "benchmarks").mkdir(parents=True, exist_ok=True)
        (self.project / "benchmarks" / "test_session.py").write_text(SESSION)
        (self.project / "pytest.ini").write_text("[pytest]\n")
        self.engine = Ray(target, EngineSection(**section))

    def shard(self, name: str, *, avoid: frozenset[str] = frozenset(), **request: Any) -> Shard:
        """A shard whose session writes what the `request` says."""
        folder = self.folder / "shards" / name
        folder.mkdir(parents=True)
        (folder / "request.json").write_text(json.dumps(request))
        return Shard(
            folder=folder,
            arguments=("-p", "no:gpubench", "-p", "no:cacheprovider", "test_session.py"),
            rootdir=self.project,
            cwd=self.project / "benchmarks",
            avoid=avoid,
        )

    def lines(self, name: str) -> list[Any]:
        """Reports that have arrived of a shard."""
        path = self.folder / "shards" / name / "reports.jsonl"
        return [*map(json.loads, path.read_text().splitlines())] if path.exists() else []

    def wait(
        self, jobs: list[str], until: Callable[[list[JobStatus]], bool], within_s: float = 60
    ) -> list[JobStatus]:
        """Poll until that holds of how the jobs stand."""
        deadline = monotonic() + within_s
        while True:
            statuses = self.engine.poll(jobs)
            for job in jobs:
                self.engine.fetch(job)
            standing = [statuses[job] for job in jobs]
            if until(standing) or monotonic() > deadline:
                return standing
            sleep(0.2)

    def left(self) -> int:
        """How many processes of sessions are still there."""
        own = processes_with(f"{MARK}={self.folder}")
        return sum(b"GPUBENCH_SHARD=" in environ_of(process) for process in own)


def environ_of(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/environ").read_bytes()
    except OSError:
        return b""


def over(statuses: list[JobStatus]) -> bool:
    return all(status.state not in {"queued", "running"} for status in statuses)


def away(nodes: list[Any]) -> Any:
    """A node of the `nodes` through which this process has not joined the cluster."""
    import ray

    own = ray.get_runtime_context().get_node_id()
    return next(node for node in nodes if node.node_id != own)


def plain(statuses: list[JobStatus]) -> list[dict[str, Any]]:
    return [vars(status) for status in statuses]


def smoke(suite: Suite, cluster: Any, nodes: list[Any]) -> dict[str, Any]:
    """Three shards on two nodes, of which one fails; a fourth is cancelled."""
    capacity = vars(suite.engine.describe())
    shards = [suite.shard(n, lines=30, fails=n == "b") for n in "abc"]
    jobs = suite.engine.submit(shards)
    first = suite.wait(jobs, lambda s: [x.state for x in s].count("running") == 2)
    suite.wait(jobs, lambda _: bool(suite.lines("a") or suite.lines("b") or suite.lines("c")))
    early = sum(len(suite.lines(n)) for n in "abc")
    last = suite.wait(jobs, over)
    (cancelled,) = suite.engine.submit([suite.shard("d", lines=3000)])
    suite.wait([cancelled], lambda _: bool(suite.lines("d")))
    suite.engine.cancel([cancelled])
    wait_until(lambda: not suite.left(), 20)
    return {
        "capacity": capacity,
        "first": plain(first),
        "early": early,
        "last": plain(last),
        "lines": [len(suite.lines(n)) for n in "abc"],
        "example": suite.lines("a")[0],
        "bytes": [(s.folder / "results/ranks/0.bin").stat().st_size for s in shards],
        "output": (shards[1].folder / "output.txt").read_text(),
        "cancelled": plain(suite.wait([cancelled], over)),
        "unknown": [*suite.engine.poll(["other"])],
    }


def lost(suite: Suite, cluster: Any, nodes: list[Any]) -> dict[str, Any]:
    """A node dies while it runs one of two shards, which goes on elsewhere."""
    jobs = suite.engine.submit([suite.shard(n, lines=200) for n in "ab"])
    running = suite.wait(jobs, lambda _: min(len(suite.lines("a")), len(suite.lines("b"))) > 10)
    processes = suite.left()
    victim = away(nodes)
    own = next(i for i in (0, 1) if running[i].node.endswith(victim.node_id[:8]))
    cluster.remove_node(victim, allow_graceful=False)
    began, before = monotonic(), len(suite.lines("ab"[own]))
    (after,) = suite.wait([jobs[own]], over)
    took_s = monotonic() - began
    wait_until(lambda: suite.left() <= processes // 2, 8)
    others = suite.engine.poll(jobs)[jobs[1 - own]].state
    node = cluster.add_node(**NODE)
    avoid = frozenset({running[1 - own].node})
    again = suite.engine.submit([suite.shard("c", lines=5, avoid=avoid)])
    return {
        "ran_on": running[own].node,
        "before": before,
        "lost": vars(after),
        "took_s": took_s,
        "kept": len(suite.lines("ab"[own])),
        "beside": others,
        "again": plain(suite.wait(again, over)),
        "new": node.node_id,
        "other": plain(suite.wait([jobs[1 - own]], over)),
    }


def gang(suite: Suite, cluster: Any, nodes: list[Any]) -> dict[str, Any]:
    """A shard of two ranks on two nodes; one for which there are too few; a node is lost."""
    suite.engine.section = EngineSection(nodes=2)
    shard = suite.shard("a", lines=10)
    jobs = suite.engine.submit([shard])
    last = suite.wait(jobs, over, 120)
    jobs = suite.engine.submit([suite.shard("b", lines=1000)])
    suite.wait(jobs, lambda _: len(suite.lines("b")) > 5)
    cluster.remove_node(away(nodes), allow_graceful=False)
    broken = suite.wait(jobs, over)
    wait_until(lambda: not suite.left(), 30)
    waiting = suite.wait(
        suite.engine.submit([suite.shard("c", lines=1)]), lambda s: "needs" in s[0].reason
    )
    return {
        "last": plain(last),
        "lines": suite.lines("a"),
        "output": (shard.folder / "output.txt").read_text(),
        "broken": plain(broken),
        "waiting": plain(waiting),
    }


class Session:
    """A session that has been started on the cluster, with steps after so many seconds."""

    def __init__(
        self, folder: Path, address: str, *arguments: str, sleep_s: float, name: str = "session"
    ):
        self._project = folder / name
        self._project.mkdir(exist_ok=True)
        (self._project / "pytest.ini").write_text("[pytest]\n")
        (self._project / "test_it.py").write_text(SUITE)
        (self._project / "sleep_s").write_text(str(sleep_s))
        command = [sys.executable, "-m", "pytest", f"--on=ray:{address}", *arguments]
        self.process = subprocess.Popen(
            [*command, "--results-dir=results", "-p", "no:randomly"],
            cwd=self._project,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def wait_for(self, count: int) -> None:
        """Until so many benchmarks are recorded."""
        wait_until(lambda: len(self.lines("benchmark")) >= count, 120)

    def lines(self, *events: str) -> list[Any]:
        """Of its journal, those of the `events`; by default all."""
        journals = self._project.glob("results/*/*/metrics.jsonl")
        lines = (
            json.loads(row) for journal in journals for row in journal.read_text().split("\n")[:-1]
        )
        return [line for line in lines if not events or line["event"] in events]

    def ended(self) -> dict[str, Any]:
        """Its code and output, and what its run tells."""
        output, _ = self.process.communicate(timeout=180)
        (path,) = self._project.glob("results/*/*/summary.json")
        benchmarks = json.loads(path.read_text())["benchmarks"]
        return {
            "code": self.process.returncode,
            "output": output,
            "outcomes": {b["name"]: b["outcome"] for b in benchmarks},
            "nodes": sorted({line.get("node", "") for line in self.lines("phase")}),
        }


def session(suite: Suite, cluster: Any, nodes: list[Any]) -> dict[str, Any]:
    """A session of two shards, of which one crashes and one hangs."""
    return Session(suite.folder, cluster.address, sleep_s=1).ended()


def session_lost(suite: Suite, cluster: Any, nodes: list[Any]) -> dict[str, Any]:
    """A node dies while it measures."""
    running = Session(suite.folder, cluster.address, "-k", "test_step", sleep_s=4)
    running.wait_for(2)
    cluster.remove_node(nodes[0], allow_graceful=False)
    seen = running.ended()
    wait_until(lambda: not suite.left(), 20)
    return {**seen, "left": suite.left()}


def session_killed(
    suite: Suite, cluster: Any, nodes: list[Any], number: int = signal.SIGKILL
) -> dict[str, Any]:
    """The session gets a signal, and is resumed."""
    running = Session(suite.folder, cluster.address, "-k", "test_step", sleep_s=4)
    running.wait_for(2)
    running.process.send_signal(number)
    running.process.communicate(timeout=60)
    kept = len(running.lines("benchmark"))
    wait_until(lambda: not suite.left(), 20)
    first = {"kept": kept, "left": suite.left(), "first_code": running.process.returncode}
    resumed = ("-k", "test_step", "--resume=last")
    return first | Session(suite.folder, cluster.address, *resumed, sleep_s=0).ended()


def session_full(suite: Suite, cluster: Any, nodes: list[Any]) -> dict[str, Any]:
    """The disk of one node fills while it measures."""
    cluster.remove_node(nodes[0])
    disk = suite.folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", disk], check=True)
    own, os.environ["TMPDIR"] = os.environ["TMPDIR"], str(disk)
    small = cluster.add_node(**NODE)
    os.environ["TMPDIR"] = own
    running = Session(suite.folder, cluster.address, "-k", "test_step", sleep_s=2)
    running.wait_for(2)
    with suppress(OSError), (disk / "large").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    seen = running.ended()
    ran = {
        line["benchmark"] for line in running.lines("phase") if small.node_id[:8] in line["node"]
    }
    wait_until(lambda: not suite.left(), 20)
    return {**seen, "ran_there": sorted(ran), "left": suite.left()}


def session_two(suite: Suite, cluster: Any, nodes: list[Any]) -> dict[str, Any]:
    """Two sessions of two users at once."""
    running = [
        Session(suite.folder, cluster.address, "-k", "test_step", sleep_s=1, name=name)
        for name in ("one", "two")
    ]
    seen = [session.ended() for session in running]
    return {
        "codes": [one["code"] for one in seen],
        "outcomes": [one["outcomes"] for one in seen],
        "journals": [session.lines() for session in running],
    }


def own(suite: Suite) -> dict[str, Any]:
    """A cluster of its own, on loopback, with code of which Git knows nothing."""
    (suite.project / ".gitignore").write_text("generated.py")
    (suite.project / "generated.py").write_text("")
    (suite.project / "results [1]").mkdir()
    (suite.project / "results [1]" / ".gitignore").write_text("*")
    (suite.project / "results [1]" / "large").write_bytes(bytes(1000))
    handler = signal.getsignal(signal.SIGTERM)
    capacity = vars(suite.engine.describe())
    other = Suite(suite.folder, "")
    (suite.project / "benchmarks" / "test_session.py").write_text(SESSION + LISTING)
    jobs = suite.engine.submit([suite.shard(name, lines=5) for name in "ab"])
    try:
        other.engine.submit([other.shard("c", lines=5)])
        refusal = ""
    except UsageProblem as problem:
        refusal = str(problem)
    listening = {
        getattr(c.laddr, "ip", "") for c in psutil.net_connections() if c.status == "LISTEN"
    }
    states = [s.state for s in suite.wait(jobs[:1], over)]
    last = plain(suite.wait(jobs, over))
    return {
        "capacity": capacity,
        "refusal": refusal,
        "listening": sorted(listening),
        "last": last,
        "states": states,
        "files": json.loads((suite.folder / "shards/a/listing.json").read_text()),
        "is_handler_kept": signal.getsignal(signal.SIGTERM) is handler,
    }


def main(name: str, folder: Path) -> None:
    """Run the scenario, with a cluster unless it starts its own."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", MARK: str(folder)}
    observed: dict[str, Any] = {}
    with ExitStack() as stack:
        if name == "own":
            suite = Suite(folder, "")
            stack.callback(suite.engine.close)
            observed = own(suite)
        else:
            from ray.cluster_utils import Cluster

            kept = {"include_dashboard": False, "object_store_memory": 100 << 20}
            cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **kept})
            stack.callback(cluster.shutdown)
            nodes = [cluster.add_node(**NODE) for _ in range(2)]
            suite = Suite(folder, cluster.address)
            stack.callback(suite.engine.close)
            observed = SCENARIOS[name](suite, cluster, nodes)
    sys.stdout.write(f"\n{json.dumps(observed)}\n")


SCENARIOS: dict[str, Callable[[Suite, Any, list[Any]], dict[str, Any]]] = {
    "smoke": smoke,
    "lost": lost,
    "gang": gang,
    "session": session,
    "session_lost": session_lost,
    "session_killed": session_killed,
    "session_interrupted": partial(session_killed, number=signal.SIGINT),
    "session_full": session_full,
    "session_two": session_two,
}

if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
