"""``gpubench gpu-check`` with real processes: budget, limits, crashes, a driver that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from gpubench_plugin.cli import main
from gpubench_plugin.cli.gpu_check import stages
from gpubench_plugin.cli.gpu_check.driver import Driver, has_gpu, is_proven
from gpubench_plugin.cli.gpu_check.record import FORMAT, GpuCheck
from gpubench_plugin.cli.gpu_check.stage import StageRun
from gpubench_plugin.cli.gpu_check.stages import faults, ranks
from gpubench_plugin.environment import stored
from gpubench_plugin.environment.locks import KernelLock
from tests.support.exhaustive import shown
from tests.support.gpu_stages import FACTS, PIDS, failed, stage

if TYPE_CHECKING:
    from gpubench_plugin.cli.gpu_check.stage import Stage

ROOT = Path(__file__).parents[2]
DRIVER = """
import sys
from pathlib import Path
from gpubench_plugin.cli.gpu_check.driver import Driver
from tests.support.gpu_stages import FACTS, stage
stages = [FACTS, stage("passes"), stage("hangs"), stage("fails")]
Driver(stages=stages, out=Path("out"), budget_s=600, progress=print).run()
"""
LONGEST_S = 60.0


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stages of the tests are found, and the working directory is one of their own."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(*chosen: Stage, **options: Any) -> GpuCheck:
    record = Driver(
        stages=chosen, out=Path("out"), budget_s=options.pop("budget_s", 600), **options
    ).run()
    assert stored_record() == record
    return record


def stored_record() -> GpuCheck:
    fields = FORMAT.load(Path("out/gpu-check.json"))
    return stored.restore(GpuCheck, fields, "the record", strict=True)


def outcomes(record: GpuCheck) -> dict[str, str]:
    return {result.name: result.outcome for result in record.stages}


def processes() -> list[int]:
    """Ids of the processes of the stage that hangs, once there are three."""
    deadline = time.monotonic() + LONGEST_S
    while time.monotonic() < deadline:
        with suppress(FileNotFoundError):
            if len(pids := Path(PIDS).read_text().split()) == 3:
                return [*map(int, pids)]
        time.sleep(0.05)
    pytest.fail("the stage did not start its processes")


def assert_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + LONGEST_S
    while left := [pid for pid in pids if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def test_every_end_of_a_stage_is_told_apart_and_costs_no_other() -> None:
    """A healthy stage after each faulty one; findings before the fault are kept."""
    record = check(
        FACTS,
        *(
            stage(name)
            for name in ("fails", "passes", "raises", "is_killed", "shows_nothing", "unsupported")
        ),
        stage("hangs", limit_s=3),
    )

    assert outcomes(record) == {
        "facts": "passed",
        "fails": "failed",
        "passes": "passed",
        "raises": "crashed",
        "is_killed": "crashed",
        "shows_nothing": "failed",
        "unsupported": "unsupported",
        "hangs": "hang",
    }
    reasons = {result.name: result.reason for result in record.stages}
    assert reasons["raises"] == "its process exited with code 1: RuntimeError: the stage is broken"
    assert reasons["is_killed"] == "its process was killed by SIGKILL"
    assert reasons["unsupported"] == "no Triton"
    assert reasons["hangs"] == "it did not end within its limit of 3 s"
    results = {result.name: result for result in record.stages}
    assert [len(results[name].criteria) for name in ("fails", "raises", "hangs")] == [2, 1, 1]
    assert record.device == {"name": "paper"}
    assert results["facts"].facts == {"more": [1]}
    assert [row.id for row in record.rows] == ["test_a.py::test_a"]
    assert "the goal is one of another device" in record.unproven
    assert "what hangs shows (hangs: hang)" in record.unproven
    assert not any("what passes shows" in statement for statement in record.unproven)
    assert not is_proven(record)
    assert_gone(processes())
    assert sorted(path.name for path in Path("out/gpu-check-stages").iterdir()) == [
        *("fails", "hangs", "is_killed", "raises", "shows_nothing"),
    ]


def test_budget_cuts_stages_and_says_so() -> None:
    """One that is running is killed, later ones are not begun; both are cut, and no hang."""
    record = check(
        FACTS, stage("hangs"), stage("passes", least_s=1.0), budget_s=6.0, progress=print
    )

    assert outcomes(record) == {"facts": "passed", "hangs": "cut", "passes": "cut"}
    assert "of the budget were left" in record.stages[1].reason
    assert "of the budget were left, it needs 1" in record.stages[2].reason
    assert not is_proven(record)
    assert_gone(processes())


def test_without_a_device_every_stage_has_the_reason() -> None:
    """No stage is begun, and nothing is proven."""
    record = check(stage("no_device", required=True), stage("passes"), stage("hangs"))

    assert set(outcomes(record).values()) == {"unsupported"}
    assert {result.reason for result in record.stages} == {"there is no GPU | here"}
    assert record.device is None
    assert len(record.unproven) == 3


def test_without_facts_nothing_else_runs() -> None:
    """A crash, or facts that do not know of a device, are no missing device."""
    record = check(stage("raises", required=True), stage("passes"))

    assert outcomes(record) == {"raises": "crashed", "passes": "not_run"}
    assert has_gpu(record)
    assert not is_proven(record)


@pytest.mark.parametrize("name", ["writes_junk", "writes_a_number", "removes_its_folder"])
def test_a_stage_whose_findings_are_broken_crashed(name: str) -> None:
    """The next stage runs."""
    record = check(FACTS, stage(name), stage("passes"))

    assert outcomes(record) == {"facts": "passed", name: "crashed", "passes": "passed"}
    assert not is_proven(record)


def test_a_line_that_was_cut_off_is_left_out() -> None:
    """The stage was killed while it wrote; what came before counts."""
    record = check(FACTS, stage("is_killed_while_it_writes"))

    assert record.stages[1].outcome == "crashed"
    assert len(record.stages[1].criteria) == 1


def test_a_session_that_is_out_of_time_is_a_hang_or_a_cut() -> None:
    """By whose limit it was: the stage's, or the budget's; a criterion that fails so is kept."""
    assert outcomes(check(FACTS, stage("waits", limit_s=11)))["waits"] == "hang"
    assert outcomes(check(FACTS, stage("waits"), budget_s=13))["waits"] == "cut"


def test_a_supervisor_that_is_killed_leaves_no_stage() -> None:
    """Which the record tells; the next stage has the device for itself."""
    record = check(FACTS, stage("kills_its_supervisor"), stage("passes"))

    assert outcomes(record) == {
        "facts": "passed",
        "kills_its_supervisor": "crashed",
        "passes": "passed",
    }
    assert record.stages[1].reason.startswith("its process was killed by SIGKILL")
    assert_gone([int(Path(PIDS).read_text())])


def test_two_checks_in_one_folder(capsys: pytest.CaptureFixture[str]) -> None:
    """The second one says so, and touches nothing."""
    Path("out").mkdir()
    with KernelLock(Path("out"), os.O_RDONLY) as lock:
        lock.acquire()
        assert main.main(["gpu-check", "--out=out"]) == 2
    assert "another gpu-check writes to it" in capsys.readouterr().err
    assert [*Path("out").iterdir()] == []


def test_files_of_the_user_stay() -> None:
    """A folder of any other name beside the record is not touched."""
    Path("out/stages").mkdir(parents=True)
    Path("out/stages/mine.txt").touch()
    check(FACTS)
    assert Path("out/stages/mine.txt").exists()


def test_the_record_is_the_document(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With ``--format=json`` it is all that is printed, as it was written."""
    monkeypatch.setattr(stages, "STAGES", (FACTS, stage("passes")))
    main.main(["gpu-check", "--out=out", "--format=json"])
    assert json.loads(capsys.readouterr().out) == json.loads(Path("out/gpu-check.json").read_text())


def test_a_reader_that_has_gone_does_not_end_the_check(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As ``| head -1`` does: the record is whole, and so is the exit code."""
    monkeypatch.setattr(stages, "STAGES", (FACTS, stage("fails"), stage("passes")))

    def broken(text: str) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(sys.stdout, "write", broken)
    assert main.main(["gpu-check", "--out=out"]) == 1
    assert outcomes(stored_record()) == {"facts": "passed", "fails": "failed", "passes": "passed"}


def test_outside_a_checkout_stages_of_the_suite_fail() -> None:
    """The reason says what to do; it is no fault of the machine."""
    traces = "gpubench_plugin.cli.gpu_check.stages.traces:traces"
    record = check(FACTS, replace(stage("traces"), program=traces))

    assert record.stages[1].outcome == "failed"
    assert "run it in a checkout of gpubench" in record.stages[1].reason


def test_parts_choose_their_stages() -> None:
    """Those of both parts belong to each."""
    both = stage("facts", required=True, parts=("proof", "speed"))
    others = (stage("passes"), stage("unsupported", parts=("speed",)))

    assert [*outcomes(check(both, *others, part="proof"))] == ["facts", "passes"]
    assert [*outcomes(check(both, *others, part="speed"))] == ["facts", "unsupported"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_driver_that_ends_in_a_stage_leaves_a_record_and_no_process(number: signal.Signals) -> None:
    """Earlier stages are whole, the running one is told, later ones were not reached."""
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    pids = processes()
    os.kill(driver.pid, number)
    driver.wait(LONGEST_S)

    assert_gone(pids)
    record = stored_record()
    is_killed = number == signal.SIGKILL
    assert outcomes(record) == {
        "facts": "passed",
        "passes": "passed",
        "hangs": "not_run" if is_killed else "cut",
        "fails": "not_run",
    }
    reasons = [result.reason for result in record.stages]
    assert reasons[2] == ("it was begun, and gpu-check was killed" if is_killed else "interrupted")
    assert reasons[3] == "not reached"
    assert record.finished is None
    assert record.device == {"name": "paper"}
    assert [row.id for row in record.rows] == ["test_a.py::test_a"]
    assert "not finished" in Path("out/gpu-check.md").read_text()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_the_command_without_a_gpu(capfd: pytest.CaptureFixture[str]) -> None:
    """Exit code 5, and a record in which every stage has the reason."""
    code = main.main(["gpu-check", "--out=out"])

    assert code == 5
    record = stored_record()
    assert len(record.stages) == 14
    assert set(outcomes(record).values()) == {"unsupported"}
    (reason,) = {result.reason for result in record.stages}
    built = torch.version.cuda is not None
    assert ("finds no GPU" if built else "was built without CUDA") in reason
    assert record.finished is not None
    assert "no GPU; recorded in out" in capfd.readouterr().out
    assert not Path("out/gpu-check-stages").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--part=prof"],
            "--part: unknown 'prof' (did you mean 'proof'?); allowed: proof, speed, all",
        ),
        (["--budget=0"], "--budget=0: not allowed; allowed: seconds above 0, such as 540"),
        (["--budget=soon"], "--budget=soon: not allowed"),
        (["--budget=nan"], "--budget=nan: not allowed"),
    ],
)
def test_bad_arguments(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One message, exit code 2."""
    assert main.main(["gpu-check", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_folder_that_cannot_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    """One message before any stage, exit code 4."""
    Path("out").touch()
    assert main.main(["gpu-check", "--out=out"]) == 4
    assert "out" in capsys.readouterr().err


LOST = """
def test_faulty(gpubench, torch_device):
    def lose():
        raise torch.AcceleratorError("CUDA error: device-side assert triggered")
    gpubench(lose)
"""


def on_cpu(folder: Path) -> StageRun:
    return StageRun(folder=folder, repository=ROOT, limit_s=300, device="cpu", preset="tiny")


@pytest.mark.parametrize("name", shown("memory", exhaustively=["context", "ranks"]))
def test_stages_of_a_real_session_pass_on_a_cpu(name: str, here: Path) -> None:
    """Their benchmarks run here as they do on a device."""
    run = on_cpu(here)
    if name == "memory":
        faults.out_of_memory(run)
    elif name == "context":
        faults.lost_context(run, fault=LOST)
    else:
        ranks.ranks(run)

    assert failed(run) == []


def test_stage_of_a_real_session_fails_on_a_cpu(here: Path) -> None:
    """Where memory suffices; the failures of other stages are those of sessions made up."""
    run = on_cpu(here)
    faults.out_of_memory(run, bytes=1 << 20, held=1)

    assert failed(run)


@pytest.mark.exhaustive
def test_headline_beside_its_loop_on_a_cpu(here: Path) -> None:
    """The loop runs over the benchmark's model in its precision."""
    from gpubench_plugin.cli.gpu_check.stages import headline

    run = on_cpu(here)
    test = "benchmarks/training/test_resnet.py::test_resnet18_train"
    keys = {"profile": "full", "max_time_s": "1"}
    headline.headline(run, test, [("channels_last", "amp")], limit=1e9, **keys)
    assert failed(run) == []
    (row,) = (json.loads(line)["row"] for line in rows_of(here))
    assert row["bare_s"] > 0
    assert row["step_time_s"] > 0


def rows_of(folder: Path) -> list[str]:
    lines = (folder / "progress.jsonl").read_text().splitlines()
    return [line for line in lines if '"row"' in line]
