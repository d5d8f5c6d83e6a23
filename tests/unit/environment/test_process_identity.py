"""Whether a process that wrote itself down is gone for certain."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from gpubench_plugin.environment import process_identity
from gpubench_plugin.environment.process_identity import ProcessIdentity

TELL = """
import json, sys
from dataclasses import asdict
from gpubench_plugin.environment.process_identity import ProcessIdentity
print(json.dumps(asdict(ProcessIdentity.current())), flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def dead() -> ProcessIdentity:
    """The identity of a process that has ended."""
    done = subprocess.run(
        [sys.executable, "-c", TELL], input="", capture_output=True, text=True, check=True
    )
    return ProcessIdentity.from_json(json.loads(done.stdout))


def myself() -> ProcessIdentity:
    identity = ProcessIdentity.current()
    assert identity is not None
    return identity


@pytest.mark.slow
def test_a_process_that_has_ended_is_gone(dead: ProcessIdentity) -> None:
    """Nobody has its number, and it survives being written down."""
    assert dead.is_gone()
    assert ProcessIdentity.from_json(asdict(dead)) == dead


def test_a_living_process_is_not_gone() -> None:
    """Its number and its start are those of one that runs."""
    assert not myself().is_gone()


def test_a_number_that_was_given_again_is_of_another_process() -> None:
    """The same process id with another start: the one that was written down has ended."""
    assert replace(myself(), started=myself().started - 1).is_gone()


@pytest.mark.slow
def test_a_killed_process_is_gone_before_its_parent_has_asked() -> None:
    """A zombie runs no more; under a parent that never asks, as in many containers, it stays."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        fields = process_identity.stat_fields(process.pid)
        assert fields is not None
        identity = replace(myself(), pid=process.pid, started=int(fields[19]))
        assert not identity.is_gone()
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert identity.is_gone()


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"host": "another-host"},
        {"place": "another boot, or another namespace of process ids"},
        {"uid": os.geteuid() + 1},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_of_another_host_boot_container_or_user_nothing_is_known(
    dead: ProcessIdentity, elsewhere: dict[str, Any]
) -> None:
    """There its number may be that of a process that lives."""
    assert not replace(dead, **elsewhere).is_gone()


@pytest.mark.slow
def test_of_another_container_nothing_is_known() -> None:
    """Its processes have numbers of their own; with a procfs that is not theirs, they tell none."""
    container = ("unshare", "--pid", "--fork")
    try:
        subprocess.run([*container, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no namespace of process ids can be made here: {error}")

    def told(*options: str) -> dict[str, Any]:
        command = [*container, *options, sys.executable, "-c", TELL]
        done = subprocess.run(command, input="", capture_output=True, text=True, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else {}

    inside = told("--mount-proc")
    if not inside:
        pytest.skip("procfs cannot be mounted here")
    assert not ProcessIdentity.from_json(inside).is_gone()
    assert ProcessIdentity.from_json(
        {**inside, "place": myself().place, "started": 2**40}
    ).is_gone()
    assert told() == {}


def test_a_system_that_does_not_tell_leaves_everything(
    dead: ProcessIdentity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without procfs, as on macOS, or with that of another namespace, nothing is known."""
    monkeypatch.setattr(process_identity, "_SELF", Path("/nowhere"))
    assert ProcessIdentity.current() is None
    assert not dead.is_gone()
    monkeypatch.setattr(process_identity, "_SELF", Path("/proc/1"))
    assert ProcessIdentity.current() is None


def test_a_start_that_cannot_be_read_is_not_another_one(
    dead: ProcessIdentity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process with that number is there; whether it is the one is not known."""
    other = replace(myself(), started=1)
    monkeypatch.setattr(ProcessIdentity, "current", classmethod(lambda cls: dead))
    monkeypatch.setattr(process_identity, "stat_fields", lambda pid: None)
    assert not other.is_gone()


@pytest.mark.parametrize("name", ["uid", "pid", "started", "host", "place"])
@pytest.mark.parametrize("value", [None, True, -1, 2**63, ["x"]], ids=repr)
def test_what_is_no_identity_is_refused(name: str, value: object) -> None:
    """A field that is missing or of another type or size is no process of anybody."""
    data = asdict(myself())
    with pytest.raises((TypeError, ValueError)):
        ProcessIdentity.from_json({**data, name: value})
    del data[name]
    with pytest.raises(KeyError):
        ProcessIdentity.from_json(data)
