"""Checks of processors, memory and disks, on a machine on paper."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from gpubench_plugin.cli.commands.doctor import checks, examine, finding
from gpubench_plugin.cli.doctor import host
from gpubench_plugin.cli.doctor.machine import Machine

Write = Callable[[str, str], None]
Machines = Callable[..., Machine]

found_by = partial(finding, section="machine")
CPU = "sys/devices/system/cpu"
INTEL = "intel_pstate/no_turbo"


@pytest.mark.parametrize(
    ("name", "outcome"), [("performance", "ok"), ("powersave", "warning"), (None, "unknown")]
)
def test_governor(write: Write, machine: Machines, name: str | None, outcome: str) -> None:
    """Any but the fastest hurts; a virtual machine often shows none."""
    for core in os.sched_getaffinity(0) if name else ():
        write(f"{CPU}/cpu{core}/cpufreq/scaling_governor", f"{name}\n")
    finding = found_by(host.governor, machine())
    assert finding.outcome == outcome
    assert bool(finding.advice) == (outcome == "warning")


@pytest.mark.parametrize(
    ("file", "text", "outcome", "advice"),
    [
        ("intel_pstate/no_turbo", "0", "warning", f"echo 1 | sudo tee /{CPU}/{INTEL}"),
        (INTEL, "1", "ok", ""),
        ("cpufreq/boost", "1", "warning", f"echo 0 | sudo tee /{CPU}/cpufreq/boost"),
        ("cpufreq/boost", "0", "ok", ""),
        ("other", "", "unknown", ""),
    ],
)
def test_turbo(
    write: Write, machine: Machines, file: str, text: str, outcome: str, advice: str
) -> None:
    """The advice names the switch that the machine has."""
    write(f"{CPU}/{file}", text)
    finding = found_by(host.turbo, machine())
    assert (finding.outcome, finding.advice) == (outcome, advice)


Kernel = Callable[..., None]


class Times(NamedTuple):
    """Percents of a core's time."""

    user: float
    idle: float
    steal: float


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """What it counts of each core: percent at work and stolen; and of process 7."""

    def counted(*cores: tuple[float, float], core: int = 1) -> None:
        times = [Times(busy, 100 - busy - stolen, stolen) for busy, stolen in cores]
        info = {"pid": 7, "name": "a (b) c", "cpu_num": core, "cpu_percent": 75.0}
        infos = (info, {**info, "pid": os.getpid()}, {**info, "cpu_percent": None})
        found = [SimpleNamespace(info=one) for one in infos]
        monkeypatch.setattr("psutil.cpu_times_percent", lambda *_, **__: times)
        monkeypatch.setattr("psutil.process_iter", lambda _: found)

    return counted


@pytest.mark.parametrize(
    ("cores", "core", "outcome", "value"),
    [
        ([(0, 0), (0, 0), (90, 0)], 1, "ok", "0% of 2 cores in use"),
        ([(0, 0), (80, 0)], 1, "warning", "40% of 2 cores in use: a (b) c (7) 75%"),
        ([(0, 0), (80, 0)], 9, "warning", "40% of 2 cores in use"),
    ],
    ids=["work on other cores", "a process on ours", "nobody in sight"],
)
def test_load(
    kernel: Kernel, machine: Machines, cores: list[Any], core: int, outcome: str, value: str
) -> None:
    """Work on our cores hurts; who does it is named, but for ourselves."""
    paper = machine()
    kernel(*cores, core=core)
    found = found_by(host.load, paper)
    assert (found.outcome, found.value) == (outcome, value)


@pytest.mark.parametrize(
    ("stolen", "outcome", "value"), [(0, "ok", "none"), (4, "warning", "2.0% of the time")]
)
def test_stolen_time(
    kernel: Kernel, machine: Machines, stolen: int, outcome: str, value: str
) -> None:
    """Time that the host gave away is a share of that of our cores."""
    paper = machine()
    kernel((0, 0), (10, stolen), (0, 50))
    found = found_by(host.stolen_time, paper)
    assert (found.outcome, found.value) == (outcome, value)


@pytest.mark.parametrize(
    ("siblings", "outcome", "value", "cores"),
    [
        (("0", "1"), "ok", "each core has one thread", ""),
        (("0-1", "0-1"), "warning", "2 usable threads of 1 physical core", "-c 0 "),
        (
            ("0,4", "1,5"),
            "warning",
            "2 usable threads of 2 physical cores; others may use 4, 5",
            "",
        ),
    ],
)
def test_hyperthreads(
    write: Write, machine: Machines, siblings: tuple[str, ...], outcome: str, value: str, cores: str
) -> None:
    """Threads of one core hurt each other, ours as well as others' beside ours."""
    for core, text in enumerate(siblings):
        write(f"{CPU}/cpu{core}/topology/thread_siblings_list", f"{text}\n")
    found = found_by(host.hyperthreads, machine())
    assert (found.outcome, found.value) == (outcome, value)
    assert cores in found.advice


@pytest.mark.parametrize(
    ("files", "value"),
    [
        ({"cpu.max": "max 100000"}, "none"),
        ({"a/b/cpu.max": "max 100000", "a/cpu.max": "150000 100000"}, "1.5 of 2 usable cores"),
        ({"cpu.max": "200000 100000"}, "2 of 2 usable cores"),
        ({"cpu.max": "400000 100000"}, "4 of 2 usable cores"),
    ],
)
def test_cpu_quota(write: Write, machine: Machines, files: dict[str, str], value: str) -> None:
    """The smallest of our control group and those around it; one of all cores hurts nothing."""
    write("proc/self/cgroup", "13:cpuset:/other\n0::/a/b\n")
    for name, text in files.items():
        write(f"sys/fs/cgroup/{name}", f"{text}\n")
    found = found_by(host.cpu_quota, machine())
    assert (found.outcome, found.value) == ("warning" if value[:3] == "1.5" else "ok", value)


@pytest.mark.parametrize(
    ("used", "outcome", "value"), [(0, "ok", "none in use"), (2**21, "warning", "2.00 MiB in use")]
)
def test_swap(
    machine: Machines, monkeypatch: pytest.MonkeyPatch, used: int, outcome: str, value: str
) -> None:
    """Memory on a disk hurts."""
    of_swap = machine()
    monkeypatch.setattr("psutil.swap_memory", lambda: SimpleNamespace(used=used))
    found = found_by(host.swap, of_swap)
    assert (found.outcome, found.value) == (outcome, value)


@pytest.mark.parametrize(
    ("enabled", "defrag", "outcome"),
    [
        ("always [madvise] never", "always defer [madvise] never", "ok"),
        ("[always] madvise never", "[always] defer madvise never", "warning"),
        ("always madvise [never]", "[always] defer madvise never", "ok"),
    ],
)
def test_huge_pages(
    write: Write, machine: Machines, enabled: str, defrag: str, outcome: str
) -> None:
    """An allocation that waits for compaction hurts."""
    write("sys/kernel/mm/transparent_hugepage/enabled", enabled)
    write("sys/kernel/mm/transparent_hugepage/defrag", defrag)
    assert found_by(host.huge_pages, machine()).outcome == outcome


@pytest.mark.parametrize(("free", "outcome"), [(2**26, "warning"), (2**31, "ok")])
def test_space(machine: Machines, monkeypatch: pytest.MonkeyPatch, free: int, outcome: str) -> None:
    """Shared memory as a container has it by default is too little; so is a full disk."""
    small, usage = machine(), SimpleNamespace(total=2**32, free=free)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    found = [
        found_by(check, small)
        for check in (host.shared_memory, host.disk_results, host.disk_temporary)
    ]
    assert [finding.outcome for finding in found] == [outcome] * 3
    assert ["--shm-size" in found[0].advice, "--results-dir" in found[1].advice] == [
        outcome == "warning"
    ] * 2


def test_results_that_cannot_be_written_are_named(machine: Machines, tmp_path: Path) -> None:
    """A file in the place of the folder has no disk; some kernels count nothing."""
    file = tmp_path / "results"
    file.write_text("")
    finding = found_by(host.disk_results, machine(results=file))
    assert (finding.outcome, finding.value) == ("warning", f"{file} is no folder to write in")
    outcomes = {found_by(check, machine()).outcome for check in (host.load, host.stolen_time)}
    assert outcomes == {"unknown"}


@pytest.mark.slow
def test_a_machine_that_tells_nothing_is_unknown(
    machine: Machines, monkeypatch: pytest.MonkeyPatch, write: Write
) -> None:
    """Each check says why; none raises, no name occurs twice, also with damaged files."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(2, "No such file or directory", "/proc/stat")

    silent = machine()
    for name in ("cpu_times_percent", "swap_memory"):
        monkeypatch.setattr(f"psutil.{name}", fail)
    findings = [*examine(silent)][: len(checks(host))]
    by_name = {f.name: f for f in findings}
    assert {name for name, f in by_name.items() if f.outcome == "unknown"} == {
        *("governor", "turbo", "load", "hyperthreads", "cpu_quota", "stolen_time"),
        *("swap", "huge_pages"),
    }
    assert all(f.value for f in findings)
    assert "No such file or directory: '/proc/stat'" in by_name["swap"].value
    assert len(by_name) == len(findings)
    for core in (0, 1):
        write(f"{CPU}/cpu{core}/topology/thread_siblings_list", "x")
    by_name = {f.name: f for f in examine(machine())}
    assert by_name["hyperthreads"].value.startswith("ValueError: ")
