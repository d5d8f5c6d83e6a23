"""Tests of the facts about processor and memory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.environment import devices
from gpubench_plugin.environment.hardware import cpu_facts

if TYPE_CHECKING:
    from pathlib import Path


def test_model_is_that_of_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the first processor; there are no more physical cores than logical ones."""
    path = tmp_path / "cpuinfo"
    path.write_text("processor\t: 0\nmodel name\t: Some CPU @ 3.00GHz\nmodel name\t: Other\n")
    monkeypatch.setattr(devices, "CPU_FILE", path)
    facts = cpu_facts()
    assert facts["model"] == "Some CPU @ 3.00GHz"
    assert (facts["physical_cores"] or 0) <= facts["logical_cores"]


def test_unknown_quota_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system does not tell it; but the model has some name."""
    monkeypatch.setattr(devices, "CPU_FILE", tmp_path / "missing")
    facts = cpu_facts(quota_file=tmp_path / "missing")
    assert facts["quota_cores"] is None
    assert facts["model"]


@pytest.mark.parametrize(
    ("text", "expected"), [("150000 100000\n", 1.5), ("max 100000\n", None), ("", None)]
)
def test_quota_of_a_container(tmp_path: Path, text: str, expected: float | None) -> None:
    """A container's CPU quota is in cores."""
    path = tmp_path / "cpu.max"
    path.write_text(text)
    assert cpu_facts(quota_file=path)["quota_cores"] == expected


def test_governors_are_those_of_the_usable_cores(tmp_path: Path) -> None:
    """Each once; without the kernel's files they are unknown."""
    for core in os.sched_getaffinity(0):
        folder = tmp_path / f"cpu{core}" / "cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_governor").write_text("performance\n")
    assert cpu_facts(cpu_folder=tmp_path)["governor"] == "performance"
    (folder / "scaling_governor").write_text("powersave\n")
    cores = os.sched_getaffinity(0)
    both = "powersave" if len(cores) == 1 else "performance powersave"
    assert cpu_facts(cpu_folder=tmp_path)["governor"] == both
    assert cpu_facts(cpu_folder=tmp_path / "missing")["governor"] is None


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("cpufreq/boost", "1\n", True),
        ("cpufreq/boost", "0\n", False),
        ("intel_pstate/no_turbo", "0\n", True),
        ("intel_pstate/no_turbo", "1\n", False),
        ("cpufreq/boost", "", None),
    ],
)
def test_boost_is_the_switch_of_the_kernel_or_of_intels_driver(
    tmp_path: Path, file: str, text: str, expected: bool | None
) -> None:
    """Intel's says whether there is none; without either it is unknown."""
    (tmp_path / file).parent.mkdir()
    (tmp_path / file).write_text(text)
    assert cpu_facts(cpu_folder=tmp_path)["boost"] is expected


def test_usable_cores_follow_the_affinity() -> None:
    """A process bound to one core may use one."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert cpu_facts()["usable_cores"] == 1
    finally:
        os.sched_setaffinity(0, before)
