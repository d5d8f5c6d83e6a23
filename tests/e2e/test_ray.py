"""Shards on a real Ray cluster: three nodes on this machine, in a network namespace."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpubench_plugin.config.sections import EngineSection
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.engines import ray
from gpubench_plugin.engines._ray_node import Receiver
from gpubench_plugin.engines.base import JobStatus, Shard
from gpubench_plugin.engines.ray import Ray, _Job

ROOT = Path(__file__).parents[2]
# A second interface, as hosts have one, on which nothing of a local cluster may listen.
NETWORK = """
ip link set lo up
ip link add outside type dummy && ip addr add 10.231.78.1/24 dev outside &&
    ip link set outside up && ip route add default dev outside
exec "$@"
"""
needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray (the extra ray)")


@pytest.fixture
def short_tmp() -> Iterator[str]:
    """A folder with a name short enough for Ray's sockets, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp", ignore_cleanup_errors=True) as name:
        yield name


def observe(scenario: str, tmp_path: Path, short_tmp: str, *, outside: bool = False) -> Any:
    """What is observed in a scenario, with mounts and a network of its own, by default loopback."""
    network = NETWORK if outside else 'ip link set lo up && exec "$@"'
    allowed = shutil.which("ip") and shutil.which("unshare")
    if not allowed or subprocess.run(["unshare", "--net", "true"], check=False).returncode:
        pytest.skip("needs the right to unshare --net, and the command ip")
    program = [sys.executable, "-m", "tests.support.ray_scenarios", scenario, str(tmp_path)]
    done = subprocess.run(
        ["unshare", "--net", "--mount", "sh", "-c", network, "sh", *program],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": short_tmp, "RAY_TMPDIR": short_tmp},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    observed = json.loads(done.stdout.splitlines()[-1])
    observed["printed"] = done.stdout + done.stderr
    return observed


@needs_ray
@pytest.mark.long
def test_shards_run_on_both_nodes(tmp_path: Path, short_tmp: str) -> None:
    """One at a time on each node; files come while they run; a cancelled one leaves no process."""
    seen = observe("smoke", tmp_path, short_tmp)

    assert seen["capacity"]["slots"] == seen["capacity"]["hosts"] == 2
    waiting = [s["reason"] for s in seen["first"] if s["state"] == "queued"]
    assert waiting == ["waits for bench: 1; 2 of 2 in use"]
    assert len({s["node"] for s in seen["first"] if s["state"] == "running"}) == 2
    assert 0 < seen["early"] < 60
    assert [(s["state"], s["code"]) for s in seen["last"]] == [("ended", n) for n in (0, 1, 0)]
    assert seen["lines"] == [30, 30, 30]
    assert seen["bytes"] == [200_000] * 3
    assert "1 failed" in seen["output"]
    assert seen["example"]["threads"] == os.environ.get("OMP_NUM_THREADS")  # not Ray's
    assert Path(seen["example"]["cwd"]).name == "benchmarks"
    assert [s["state"] for s in seen["cancelled"]] == ["cancelled"]
    assert seen["unknown"] == []


@needs_ray
@pytest.mark.long
def test_a_lost_node_costs_its_shard_alone(tmp_path: Path, short_tmp: str) -> None:
    """What had come stays, nothing goes on there, and another node takes over."""
    seen = observe("lost", tmp_path, short_tmp)

    assert seen["lost"]["state"] == "lost"
    assert seen["lost"]["node"] == seen["ran_on"]
    assert "dead" in seen["lost"]["reason"]
    assert "\n" not in seen["lost"]["reason"]
    assert seen["took_s"] < 30
    assert seen["kept"] >= seen["before"] > 10
    assert seen["beside"] == "running"
    assert [(s["state"], s["code"]) for s in seen["again"]] == [("ended", 0)]
    assert seen["again"][0]["node"].endswith(seen["new"][:8])  # the other was to be avoided
    assert [s["state"] for s in seen["other"]] == ["ended"]
    assert "Raylet is terminated" not in seen["printed"]


@needs_ray
@pytest.mark.long
def test_torchrun_starts_the_ranks_of_several_nodes(tmp_path: Path, short_tmp: str) -> None:
    """The first rank's files come; one lost member ends all; too few nodes are told."""
    seen = observe("gang", tmp_path, short_tmp)

    assert [(s["state"], s["code"]) for s in seen["last"]] == [("ended", 0)]
    assert {(line["rank"], line["world"]) for line in seen["lines"]} == {("0", "2")}
    assert "1 passed" in seen["output"]
    assert [s["state"] for s in seen["broken"]] == ["lost"]
    reason = "needs 2 nodes with bench: 1, the cluster has 1"
    assert [s["reason"] for s in seen["waiting"]] == [reason]
    assert "Unhandled error" not in seen["printed"]


@needs_ray
@pytest.mark.long
def test_a_cluster_of_its_own(tmp_path: Path, short_tmp: str) -> None:
    """It listens on loopback alone; code travels that Git ignores, what ignores itself does not."""
    seen = observe("own", tmp_path, short_tmp, outside=True)

    assert seen["capacity"]["slots"] == 1
    assert [(s["state"], s["code"]) for s in seen["last"]] == [("ended", 0)] * 2
    assert seen["refusal"] == "--on=ray: another session measures on this host"
    assert all(address.endswith("127.0.0.1") for address in seen["listening"])
    assert "generated.py" in seen["files"]
    assert not [name for name in seen["files"] if "results" in name]
    assert seen["is_handler_kept"]


def test_a_dead_node_that_its_task_does_not_tell(tmp_path: Path) -> None:
    """Ray's list of nodes tells it."""
    engine = Ray("auto", EngineSection())
    nodes = [{"NodeID": f"{name * 8}-rest", "Alive": name == "a"} for name in "ab"]
    engine._ray = SimpleNamespace(nodes=lambda: nodes)
    shard = Shard(folder=tmp_path, rootdir=tmp_path, cwd=tmp_path)
    for name in "ab":
        running = JobStatus(state="running", node=f"host-{name * 8}")
        job = _Job(shard=shard, receiver=Receiver(tmp_path), needs={}, selector={}, status=running)
        job.nodes.add(name * 8)
        engine._jobs[name] = job

    statuses = engine.poll(["a", "b"])

    assert (statuses["a"].state, statuses["b"].state) == ("running", "lost")


class TestRefusals:
    def test_a_client_address(self) -> None:
        """The session's processes must reach the cluster's objects."""
        with pytest.raises(UsageProblem, match="on a machine of the cluster"):
            Ray("ray://head:10001", EngineSection())

    def test_no_ray(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The extra is named."""
        monkeypatch.setattr(ray, "find_spec", lambda name: None)

        with pytest.raises(UsageProblem, match=r"pytest-gpubench\[ray\]"):
            Ray("", EngineSection()).describe()

    @needs_ray
    def test_a_cluster_that_does_not_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """One line, within a bounded time."""
        monkeypatch.setattr(ray, "_PROBE_S", 8.0)

        with pytest.raises(UsageProblem, match=r"--on=ray:127\.0\.0\.1:1: no answer within 8 s"):
            Ray("127.0.0.1:1", EngineSection()).describe()
