"""Slots of this host: which GPUs and cores a shard has to itself."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpubench_plugin.config.sections import EngineSection
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.engines import local
from gpubench_plugin.engines.base import FOLDER, JobStatus, Shard
from gpubench_plugin.engines.local import Local, slots_of

NEAR = frozenset(range(8))
FAR = frozenset(range(8, 16))
ALL = NEAR | FAR


@pytest.mark.parametrize(
    ("gpus", "number", "expected"),
    [
        ({}, 2, [((), "02468"), ((), "13579")]),
        ({"a": NEAR, "b": FAR}, 2, [(("a",), NEAR), (("b",), FAR)]),
        ({"a": NEAR, "b": NEAR}, 2, [(("a",), "0246"), (("b",), "1357")]),
        (
            {"a": NEAR, "b": NEAR, "c": FAR, "d": FAR},
            2,
            [(("a", "c"), "0246"), (("b", "d"), "1357")],
        ),
        ({"a": frozenset(), "b": frozenset()}, 1, [(("a", "b"), ALL)]),
    ],
)
def test_slots_share_gpus_and_the_cores_near_them(
    gpus: dict[str, frozenset[int]], number: int, expected: list[tuple[tuple[str, ...], Any]]
) -> None:
    """No core is in two slots where there are enough, nor a GPU."""
    cores = frozenset(range(10)) if not gpus else ALL
    slots = [(slot.gpus, slot.cores) for slot in slots_of(gpus, cores, number)]
    assert slots == [(own, frozenset(map(int, near))) for own, near in expected]


def test_more_slots_than_cores_near_a_gpu_share_them() -> None:
    """A GPU is measured with cores of others rather than with none."""
    slots = slots_of(dict.fromkeys("abc", frozenset({0})), frozenset({0, 1}), 3)
    assert [slot.cores for slot in slots] == [frozenset({0})] * 3


ANSWERS: dict[str, Any] = {
    "nvmlDeviceGetCount": lambda: 2,
    "nvmlDeviceGetHandleByIndex": lambda index: index,
    "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
    "nvmlDeviceGetCpuAffinity": lambda handle, words: [0, 0b11] if handle else [0b11, 0],
}
"""Of two GPUs, the second one near cores 64 and 65."""


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, {"GPU-0": {0, 1}, "GPU-1": {64, 65}}),
        ("1", {"GPU-1": {64, 65}}),
        ("", {}),
    ],
)
def test_gpus_are_those_that_the_session_may_use(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, expected: dict[str, set[int]]
) -> None:
    """By NVML, without starting CUDA, in the order of CUDA_VISIBLE_DEVICES."""

    @contextlib.contextmanager
    def opened() -> Iterator[Any]:
        yield SimpleNamespace(**ANSWERS)

    monkeypatch.setattr(local.nvml, "opened", opened)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert local._gpus() == expected


@pytest.mark.parametrize(
    ("target", "section", "message"),
    [
        ("x", EngineSection(), "--on=local: 'x' is not a positive integer"),
        ("0", EngineSection(), "--on=local: '0' is not a positive integer"),
        ("9999", EngineSection(), "--on=local:9999: this host has"),
        ("", EngineSection(nodes=2), "engine.nodes 2: local is one node"),
    ],
)
def test_what_this_host_cannot_do_is_refused(
    target: str, section: EngineSection, message: str
) -> None:
    """In one line, before anything is started."""
    with pytest.raises(UsageProblem, match=message):
        Local(target, section)


class Played(Local):
    """A host of two slots, whose shards write which GPU they see, and end when they are told to."""

    def __init__(self, folder: Path):
        super().__init__("", EngineSection())
        gpus = {name: frozenset({0}) for name in (f"GPU-{folder.name}-a", f"GPU-{folder.name}-b")}
        self.slots = slots_of(gpus, frozenset({0}), 2)
        self._host = local.Slot(name="host", gpus=tuple(gpus), cores=frozenset({0}))


SCRIPT = f"""
import os, pathlib, time
folder = pathlib.Path(os.environ["{FOLDER}"])
(folder / "seen").write_text(os.environ["CUDA_VISIBLE_DEVICES"])
while not (folder / "end").exists():
    time.sleep(0.01)
"""


@pytest.fixture
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Shard]:
    """Three shards, of which the last one is alone; their sessions are the script."""
    monkeypatch.setattr(Shard, "command", lambda self, python: [python, "-c", SCRIPT])
    folders = [tmp_path / name for name in "123"]
    for folder in folders:
        folder.mkdir()
    return [
        Shard(folder=folder, rootdir=tmp_path, cwd=tmp_path, is_alone=folder.name == "3")
        for folder in folders
    ]


def states(engine: Local, jobs: list[str]) -> list[str]:
    """States of the jobs."""
    return [engine.poll(jobs)[job].state for job in jobs]


def wait_for(engine: Local, jobs: list[str], expected: list[str]) -> None:
    """Until the jobs have these states, at most a minute."""
    end = time.monotonic() + 60
    while states(engine, jobs) != expected:
        assert time.monotonic() < end, (states(engine, jobs), expected)
        time.sleep(0.01)


def test_each_shard_has_a_slot_and_one_alone_the_host(tmp_path: Path, shards: list[Shard]) -> None:
    """The one that is alone waits for the others, and sees all GPUs."""
    engine = Played(tmp_path)
    jobs = engine.submit(shards)
    wait_for(engine, jobs, ["running", "running", "queued"])
    for shard in shards[:2]:
        (shard.folder / "end").touch()
    wait_for(engine, jobs, ["ended", "ended", "running"])
    (shards[2].folder / "end").touch()
    wait_for(engine, jobs, ["ended"] * 3)
    seen = [(shard.folder / "seen").read_text() for shard in shards]
    assert sorted(seen[:2]) == sorted(engine._host.gpus)
    assert seen[2] == ",".join(engine._host.gpus)
    assert engine.poll(jobs)[jobs[0]] == JobStatus(state="ended", code=0)


def test_a_device_is_not_measured_by_two_sessions(tmp_path: Path, shards: list[Shard]) -> None:
    """Another user's session waits, says so, and goes on."""
    first, second = Played(tmp_path), Played(tmp_path)
    jobs = first.submit(shards[:2])
    wait_for(first, jobs, ["running", "running"])
    (waiting,) = second.submit(shards[2:])
    assert second.poll([waiting])[waiting].reason == "another session measures on this host"
    first.cancel(jobs)
    assert states(first, jobs) == ["ended", "ended"]
    wait_for(second, [waiting], ["running"])
    second.close()
    assert states(second, [waiting]) == ["ended"]
    assert not [p for p in Path("/proc").glob("[0-9]*") if runs_in(p, tmp_path)]


def runs_in(process: Path, folder: Path) -> bool:
    """Whether a process works in the folder."""
    with contextlib.suppress(OSError):
        return (process / "cwd").readlink() == folder
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="cores of a process are Linux's")
def test_a_shard_runs_on_the_cores_of_its_slot(tmp_path: Path, shards: list[Shard]) -> None:
    """And with as many threads, unless the user states their number."""
    engine = Played(tmp_path)
    jobs = engine.submit(shards[:1])
    wait_for(engine, jobs, ["running"])
    child = engine._jobs[jobs[0]].child
    assert child is not None
    assert os.sched_getaffinity(child.pid) == {0}
    engine.close()
