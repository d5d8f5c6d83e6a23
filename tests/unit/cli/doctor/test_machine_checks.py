"""Checks of processors, memory and disks, on a machine on paper."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpubench_plugin.cli.doctor import processors, storage
from gpubench_plugin.cli.doctor.checks import MACHINE_CHECKS, examine
from gpubench_plugin.cli.doctor.machine import Machine

Write = Callable[[str, str], None]
Machines = Callable[..., Machine]

CPU = "sys/devices/system/cpu"


@pytest.mark.parametrize(
    ("name", "outcome"), [("performance", "ok"), ("powersave", "warning"), (None, "unknown")]
)
def test_governor(write: Write, machine: Machines, name: str | None, outcome: str) -> None:
    """Any but the fastest hurts; a virtual machine often shows none."""
    for core in os.sched_getaffinity(0) if name else ():
        write(f"{CPU}/cpu{core}/cpufreq/scaling_governor", f"{name}\n")
    finding = processors.governor(machine())
    assert finding.outcome == outcome
    assert bool(finding.advice) == (outcome == "warning")


@pytest.mark.parametrize(
    ("file", "text", "outcome", "advice"),
    [
        (
            "intel_pstate/no_turbo",
            "0",
            "warning",
            f"echo 1 | sudo tee /{CPU}/intel_pstate/no_turbo",
        ),
        ("intel_pstate/no_turbo", "1", "ok", ""),
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
    finding = processors.turbo(machine())
    assert (finding.outcome, finding.advice) == (outcome, advice)


def stat(*cores: str) -> str:
    lines = (f"cpu{number} {fields}\n" for number, fields in enumerate(cores))
    return "cpu  1 1 1 1\n" + "".join(lines) + "intr 1\n"


def process(name: str, *, core: int, ticks: int) -> str:
    fields = ["S", *["0"] * 10, str(ticks), "0", *["0"] * 23, str(core), "0"]
    return f"1 ({name}) {' '.join(fields)}\n"


IDLE = "0 0 0 {} 0 0 0 0 0 0"


def activity(
    write: Write, machine: Machines, later: tuple[str, ...], ticks: int = 0, *, core: int = 1
) -> Machine:
    """A machine whose cores stood at zero, and process 7 which worked these ticks meanwhile."""
    write("proc/stat", stat(*[IDLE.format(0)] * len(later)))
    write("proc/7/stat", process("a (b) c", core=core, ticks=5))

    def sleep(_: float) -> None:
        write("proc/stat", stat(*later))
        write("proc/7/stat", process("a (b) c", core=core, ticks=5 + ticks))
        write("proc/8/stat", "damaged")

    return machine(sleep=sleep)


def test_idle_cores_are_ok(write: Write, machine: Machines) -> None:
    """Work on cores that are not ours does not count."""
    busy = "90 0 10 0 0 0 0 0 0 0"
    found = processors.load(activity(write, machine, (IDLE.format(100), IDLE.format(100), busy)))
    assert (found.outcome, found.value) == ("ok", "0% of 2 cores in use")


def test_load_names_who_works(write: Write, machine: Machines) -> None:
    """A process on our cores is named with its share of a core."""
    busy = "60 0 20 20 0 0 0 0 0 0"
    found = processors.load(activity(write, machine, (IDLE.format(100), busy), 75))
    assert (found.outcome, found.value) == ("warning", "40% of 2 cores in use: a (b) c (7) 75%")


def test_load_of_nobody_in_sight(write: Write, machine: Machines) -> None:
    """Processes of other containers, or on other cores, are not named."""
    busy = "60 0 20 20 0 0 0 0 0 0"
    found = processors.load(activity(write, machine, (IDLE.format(100), busy), 75, core=9))
    assert found.value == "40% of 2 cores in use"


def test_a_kernel_that_counts_nothing_is_unknown(write: Write, machine: Machines) -> None:
    """Some sandboxes show zeros."""
    still = activity(write, machine, (IDLE.format(0), IDLE.format(0)))
    assert {processors.load(still).outcome, processors.stolen_time(still).outcome} == {"unknown"}


@pytest.mark.parametrize(
    ("flags", "stolen", "outcome", "value"),
    [
        ("fpu hypervisor", 0, "ok", "none; a virtual machine"),
        ("fpu", 0, "ok", "none; no virtual machine"),
        ("fpu hypervisor", 4, "warning", "2.0% of the time; a virtual machine"),
    ],
)
def test_stolen_time(
    write: Write, machine: Machines, flags: str, stolen: int, outcome: str, value: str
) -> None:
    """Time that the host gave away is a share of that of our cores."""
    write("proc/cpuinfo", f"flags\t\t: {flags}\n")
    second = f"0 0 0 {100 - stolen} 0 0 0 {stolen} 0 0"
    found = processors.stolen_time(activity(write, machine, (IDLE.format(100), second)))
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
    found = processors.hyperthreads(machine())
    assert (found.outcome, found.value) == (outcome, value)
    assert cores in found.advice


@pytest.mark.parametrize(
    ("files", "value"),
    [
        ({"cpu.max": "max 100000"}, "none"),
        ({"a/b/cpu.max": "max 100000", "a/cpu.max": "150000 100000"}, "1.5 of 2 usable cores"),
        (
            {"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"},
            "0.5 of 2 usable cores",
        ),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, "none"),
    ],
)
def test_cpu_quota(write: Write, machine: Machines, files: dict[str, str], value: str) -> None:
    """The smallest of our control group and those around it, in either version of them."""
    write("proc/self/cgroup", "0::/a/b\n")
    for name, text in files.items():
        write(f"sys/fs/cgroup/{name}", f"{text}\n")
    found = processors.cpu_quota(machine())
    assert (found.outcome, found.value) == ("ok" if value == "none" else "warning", value)


@pytest.mark.parametrize(
    "group", ["12:cpu,cpuacct:/jobs/1", "3:cpuacct,cpu:/jobs/1", "2:cpu:/jobs"]
)
def test_quota_of_a_group_of_version_1_is_read_where_the_group_is(
    write: Write, machine: Machines, group: str
) -> None:
    """As with a batch system's jobs; in a container the own group is the root."""
    write("proc/self/cgroup", f"13:cpuset:/other\n{group}\n0::/\n")
    for name, quota in (("", -1), ("jobs/", 50_000), ("jobs/1/", -1), ("other/", 1)):
        write(f"sys/fs/cgroup/cpu/{name}cpu.cfs_quota_us", f"{quota}\n")
        write(f"sys/fs/cgroup/cpu/{name}cpu.cfs_period_us", "100000\n")
    assert processors.cpu_quota(machine()).value == "0.5 of 2 usable cores"


@pytest.mark.parametrize(("quota", "outcome"), [(400_000, "ok"), (200_000, "ok"), (1, "warning")])
def test_quota_of_all_usable_cores_suspends_nothing(
    write: Write, machine: Machines, quota: int, outcome: str
) -> None:
    """Two cores have no more than 200 ms in a period of 100 ms."""
    write("proc/self/cgroup", "0::/\n")
    write("sys/fs/cgroup/cpu.max", f"{quota} 100000\n")
    assert processors.cpu_quota(machine()).outcome == outcome


def test_no_writable_folder_for_temporary_files_is_a_warning(
    machine: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container of which all is read-only; the rest is examined."""

    def fail() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr("tempfile.gettempdir", fail)
    found = storage.disk_temporary(machine(temporary=Machine().temporary))
    assert (found.outcome, found.value) == ("warning", "no folder is writable")


def test_swap(write: Write, machine: Machines) -> None:
    """Memory on a disk hurts."""
    write("proc/meminfo", "SwapTotal: 4096 kB\nSwapFree: 4096 kB\n")
    assert storage.swap(machine()).outcome == "ok"
    write("proc/meminfo", "SwapCached: 9 kB\nSwapTotal: 4096 kB\nSwapFree: 1024 kB\n")
    found = storage.swap(machine())
    assert (found.outcome, found.value) == ("warning", "3.00 MiB in use")


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
    assert storage.huge_pages(machine()).outcome == outcome


@pytest.mark.parametrize(("free", "outcome"), [(2**26, "warning"), (2**31, "ok")])
def test_space(machine: Machines, free: int, outcome: str) -> None:
    """Shared memory as a container has it by default is too little; so is a full disk."""
    small = machine(disk_usage=lambda _: SimpleNamespace(total=2**32, free=free))
    found = [
        storage.shared_memory(small),
        storage.disk_results(small),
        storage.disk_temporary(small),
    ]
    assert [finding.outcome for finding in found] == [outcome] * 3
    assert ["--shm-size" in found[0].advice, "--results-dir" in found[1].advice] == [
        outcome == "warning"
    ] * 2


def test_results_that_cannot_be_written_are_named(machine: Machines, tmp_path: Path) -> None:
    """A file in the place of the folder has no disk to be examined."""
    file = tmp_path / "results"
    file.write_text("")
    finding = storage.disk_results(machine(results=file))
    assert (finding.outcome, finding.value) == ("warning", f"{file} is no folder")


@pytest.mark.slow
def test_a_machine_that_tells_nothing_is_unknown(machine: Machines) -> None:
    """Each check says why; none raises, and no name occurs twice."""
    findings = [*examine(machine())][: len(MACHINE_CHECKS)]
    assert {f.name for f in findings if f.outcome == "unknown"} == {
        *("governor", "turbo", "load", "hyperthreads", "cpu_quota", "stolen_time"),
        *("swap", "huge_pages"),
    }
    assert all(f.value for f in findings)
    by_name = {f.name: f.value for f in findings}
    assert by_name["swap"].endswith("proc/meminfo: No such file or directory")
    assert len(by_name) == len(findings)


@pytest.mark.slow
def test_damaged_files_are_unknown(write: Write, machine: Machines) -> None:
    """What the kernel never writes is no traceback either."""
    write("proc/meminfo", "\x00")
    write("proc/stat", "cpu0 a b c\n")
    by_name = {f.name: f for f in examine(machine())}
    assert by_name["swap"].value == "KeyError: 'SwapTotal'"
    assert by_name["load"].outcome == "unknown"
