"""The command ``gpubench doctor``: its table, its JSON, its exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpubench_plugin.cli import main
from gpubench_plugin.cli.commands import doctor
from gpubench_plugin.cli.commands.base import ExitCode
from gpubench_plugin.cli.doctor import torch_facts
from gpubench_plugin.cli.doctor.machine import Machine
from tests.support.fake_gpus import FakeGpu, FakeNvml

FACTS = {
    "device": {"name": "cuda:0", "model": "NVIDIA H200", "memory_gib": 139.8},
    "precisions": {"fp32": None, "tf32": "too old"},
}
NAMES = [
    *("governor", "turbo", "load", "hyperthreads", "cpu_quota", "stolen_time", "swap"),
    *("huge_pages", "shared_memory", "disk_results", "disk_temporary"),
    *("gpu_clocks", "gpu_persistence", "gpu_ecc", "gpu_mig", "gpu_power_limit", "gpu_processes"),
    *("driver", "architectures", "nccl", "gpu_links"),
]


@pytest.fixture
def examined(
    machine: Callable[..., Machine], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:
    """Let the command examine a machine on paper, with one GPU of that name."""

    def examine(name: str = "NVIDIA H200", **facts: Any) -> None:
        on_paper = machine(FACTS, library=FakeNvml(FakeGpu(name=name)), **facts)
        monkeypatch.setattr(doctor, "Machine", lambda **_: on_paper)

    return examine


@pytest.mark.slow
def test_every_finding_is_a_line(
    examined: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    """What is supported comes first; what hurts changes no exit code; no name steers a terminal."""
    examined()
    assert main.main(["doctor"]) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    assert "device           cuda:0 (NVIDIA H200, 140 GiB)" in lines
    assert "  tf32           no: too old" in lines
    first = lines.index("machine") + 1
    assert lines[first + 11] == "GPU 0 (NVIDIA H200)"
    assert lines[-5] == "software"
    assert lines[-4].startswith("  driver           ok       580.65.06, CUDA 13.0; torch 2.11.0")
    assert sum(line.startswith("  ") for line in lines[first:]) == 11 + 6 + 4
    examined(name="\x1b[31mH200\nx")
    assert main.main(["doctor"]) == ExitCode.OK
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\\x1b[31mH200 x" in out
    examined(torch_command=("false",))
    assert main.main(["doctor"]) == ExitCode.OK
    out = capsys.readouterr().out
    assert "device           unknown: torch cannot be examined: " in out
    assert "  disk_results     ok " in out


def test_without_torch_the_device_is_the_processor(
    examined: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A torch that is not installed is no failure to examine it."""
    examined(torch_command=("false",))
    monkeypatch.setattr(doctor, "package_versions", lambda: {"pytest": "9.0.0"})
    assert main.main(["doctor"]) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    assert "torch            not installed" in lines
    assert "device           cpu; other devices need torch" in lines
    assert "precisions       unknown without torch" in lines


@pytest.mark.slow
def test_json_has_the_same_under_names_that_stay(
    examined: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    """Scripts go by these names."""
    examined()
    assert main.main(["doctor", "--format=json"]) == ExitCode.OK
    report = json.loads(capsys.readouterr().out)
    assert report["schema_version"] == 1
    assert report["torch"]["precisions"] == FACTS["precisions"]
    assert [check["name"] for check in report["checks"]] == NAMES
    assert {tuple(check) for check in report["checks"]} == {
        ("name", "section", "device", "outcome", "value", "advice")
    }
    assert {check["outcome"] for check in report["checks"]} <= {"ok", "warning", "unknown"}
    devices = {check["device"] for check in report["checks"]}
    assert devices == {None, "GPU 0 (NVIDIA H200)"}


def test_facts_of_torch_are_those_of_this_one() -> None:
    """The process knows the default device and its precisions."""
    facts = torch_facts.facts()
    assert facts["precisions"]["fp32"] is None
    assert {"version", "cuda", "nccl", "architectures", "devices", "problem"} <= facts.keys()
    assert facts["device"]["name"]


@pytest.mark.slow
def test_this_machine_is_examined(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it is, with its own kernel and torch: every check has an outcome; none writes."""
    monkeypatch.chdir(tmp_path)
    assert main.main(["doctor", "--format=json"]) == ExitCode.OK
    assert [*tmp_path.iterdir()] == []
    report = json.loads(capsys.readouterr().out)
    assert report["torch"]["error"] == ""
    assert {check["name"] for check in report["checks"]} <= {*NAMES}
    assert all(check["value"] for check in report["checks"])
    assert all(check["advice"] for check in report["checks"] if check["outcome"] == "warning")


def test_every_check_is_documented() -> None:
    """By its name, in the table of the guide."""
    text = (Path(main.__file__).parents[2] / "docs" / "guide" / "doctor.md").read_text()
    assert [name for name in NAMES if f"`{name}`" not in text] == []


@pytest.mark.slow
def test_a_terminal_gets_lines_that_fit(
    examined: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Further lines of a finding stand below its text; no word is lost, and no path is cut."""
    examined()
    main.main(["doctor"])
    whole = capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    main.main(["doctor"])
    fitting = capsys.readouterr().out
    lengths = [max(len(line) for line in text.splitlines() if "/" not in line)
               for text in (whole, fitting)]  # fmt: skip
    assert lengths[0] > 60 >= lengths[1]
    assert fitting.split() == whole.split()
