"""A gang replaces its ranks, and ends them with its session, however that comes to its end."""

from __future__ import annotations

import json
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.system.scratch import private_folder
from tests.support.processes import processes_with, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.projects import Project

QUICK = ("--measure.by=steps", "--measure.steps=20", "--measure.warmup_s=0.001")


@pytest.mark.exhaustive
def test_rank_that_ends_between_two_benchmarks_costs_none(
    project: Project, temporary: Path
) -> None:
    """Its gang is replaced with a warning, even where warnings are errors; both are measured.

    So is a gang that loses a rank while it starts.
    """
    project.write("conftest.py", KILLS_BETWEEN)
    project.write("test_it.py", TWO)

    run = project.run("-W", "error", env={"TMPDIR": str(temporary)})

    assert run.code == 0, run.out + run.err
    assert set(run.outcomes.values()) == {"measured"}
    said = " ".join(run.out.split())
    assert "between two benchmarks, rank 1 was killed by SIGKILL" in said
    assert "killer) while the gang of 2 was starting; started a new gang of 2" in said
    assert left_of(temporary) == []


KILLS_BETWEEN = """
import os, pathlib, signal, time
if os.environ.get("RANK") == "1" and not pathlib.Path("killed").exists():
    pathlib.Path("killed").touch()
    os.kill(os.getpid(), signal.SIGKILL)
def pytest_runtest_logfinish(nodeid):
    if "RANK" in os.environ or "test_first" not in nodeid:
        return
    pid = pathlib.Path("rank-1").read_text()
    os.kill(int(pid), signal.SIGKILL)
    def is_zombie():
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "Z"
    # The connection ends with the last of the threads.
    while not is_zombie() or len(os.listdir(f"/proc/{pid}/task")) > 1:
        time.sleep(0.01)
"""
TWO = """
import os, pathlib, pytest
pytestmark = pytest.mark.gpubench(ranks=2)
def test_first(gpubench):
    pathlib.Path(f"rank-{os.environ['RANK']}").write_text(str(os.getpid()))
    gpubench(lambda: None)
def test_second(gpubench): gpubench(lambda: None)
"""
ENDLESS = """
import os, pathlib, pytest, time
pytestmark = pytest.mark.gpubench(ranks=2)
def test_first(gpubench): gpubench(lambda: None)
def test_second(gpubench, process_group):
    pathlib.Path(f"rank-{os.environ['RANK']}").write_text(str(os.getpid()))
    if os.environ["RANK"] == "0":
        process_group.agreement.barrier()
    while True: pass
"""
LOADER = """
@pytest.fixture
def loader():
    import torch
    data = torch.utils.data.DataLoader(range(4), num_workers=1, persistent_workers=True)
    yield next(iter(data)), data
"""


def test_interrupt_ends_all_ranks_and_keeps_what_was_measured(
    project: Project, temporary: Path
) -> None:
    """Ctrl-C: exit code 2, an interrupted run with the earlier result, nothing left behind."""
    project.write("test_it.py", ENDLESS)
    process = project.start(*QUICK, env={"TMPDIR": str(temporary)})
    wait_until(lambda: all((project.path / f"rank-{rank}").exists() for rank in (0, 1)))

    process.send_signal(signal.SIGINT)

    out, err = process.communicate(timeout=60)
    assert process.returncode == 2, out + err
    (summary,) = (project.path / "results").glob("*/*/summary.json")
    recorded = json.loads(summary.read_text())
    assert recorded["status"] == "interrupted"
    assert [b["outcome"] for b in recorded["benchmarks"]] == ["measured", "not_measured"]
    assert left_of(temporary) == []


@pytest.mark.exhaustive
def test_no_rank_outlives_its_controller(project: Project, temporary: Path) -> None:
    """After SIGKILL of the controller the ranks are gone, waiting or computing, and their workers.

    The journal can be read, and the next gang removes the folder that is left.
    """
    source = ENDLESS.replace("(gpubench, process", "(loader, gpubench, process")
    project.write("test_it.py", source + LOADER)
    process = project.start(*QUICK, env={"TMPDIR": str(temporary)})
    wait_until(lambda: all((project.path / f"rank-{rank}").exists() for rank in (0, 1)))

    # The controller, and two ranks with a worker each.
    assert len(processes_with(f"TMPDIR={temporary}")) >= 5
    process.kill()
    process.communicate(timeout=60)

    wait_until(lambda: processes_with(f"TMPDIR={temporary}") == [])
    (journal,) = (project.path / "results").glob("*/*/metrics.jsonl")
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    assert [e["outcome"] for e in events if e["event"] == "benchmark"] == ["measured"]
    assert [path.name[:14] for path in temporary.glob("gpubench-*")] == ["gpubench-gang-"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(temporary))
        private_folder().remove()
    assert list(temporary.glob("gpubench-*")) == []


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder for temporary files of the runs alone, with a path short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        yield Path(folder)


def left_of(temporary: Path) -> list[str]:
    """What still runs or lies about."""
    left = processes_with(f"TMPDIR={temporary}")
    return [*map(str, left), *(path.name for path in temporary.iterdir())]
