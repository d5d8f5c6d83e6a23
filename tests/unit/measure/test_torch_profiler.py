"""The trace of a step, and the same steps without one."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch

from gpubench_plugin.config import ProfilingSection
from gpubench_plugin.errors import ResultsError
from gpubench_plugin.measure.probes import profile, profiler

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch.profiler import ProfilerActivity

CPU = torch.device("cpu")


class Step:
    """A matrix product that counts how often it ran."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1
        torch.mm(torch.ones(4, 4), torch.ones(4, 4))


def names(path: Path) -> list[str]:
    return [event["name"] for event in json.loads(path.read_text())["traceEvents"]]


def test_trace_holds_the_operations_of_every_step(tmp_path: Path) -> None:
    """The file is valid JSON with each step and its operations; nothing is left beside it."""
    path = tmp_path / "traces" / "test_mlp[fp32-ws1].json"
    profile(Step(), section=ProfilingSection(steps=2), device=CPU, path=path)
    found = names(path)
    assert [found.count(name) for name in ("aten::mm", "step 0", "step 1", "step 2")] == [
        2,
        1,
        1,
        0,
    ]
    assert [path] == list(path.parent.iterdir())


class Starting(Step):
    """A step whose first call does more, as the one that starts the device's tracing does."""

    def __call__(self) -> None:
        if self.calls == 0:
            torch.relu(torch.ones(4))
        super().__call__()


def test_first_profiled_step_is_not_in_the_trace(tmp_path: Path) -> None:
    """The step in which tracing starts runs before the traced ones, and leaves no events."""
    path = tmp_path / "trace.json"
    profile(Starting(), section=ProfilingSection(steps=2), device=CPU, path=path)
    events = names(path)
    assert (events.count("aten::relu"), events.count("aten::mm")) == (0, 2)


def test_device_is_traced_after_a_step_that_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of CUDA its activity is traced; the device is waited for before and after the traced steps.

    What a device without a driver cannot trace is left to the CPU's activity.
    """
    order: list[str] = []

    def without_device(activities: list[ProfilerActivity], **options: Any) -> Any:
        order.extend(activity.name for activity in activities)
        return torch.profiler.profile(activities=activities[:1], **options)

    monkeypatch.setattr(profiler, "torch_profile", without_device)
    monkeypatch.setattr(profiler, "synchronize", lambda device: order.append(f"wait {device}"))
    path = tmp_path / "trace.json"
    profile(
        lambda: order.append("step"),
        section=ProfilingSection(steps=2),
        device=torch.device("cuda:0"),
        path=path,
    )
    assert order == ["CPU", "CUDA", "step", "wait cuda:0", "step", "step", "wait cuda:0"]
    assert "step 1" in names(path)


@pytest.mark.parametrize("name", ["trace.json", None])
def test_every_rank_runs_the_same_steps(name: str | None, tmp_path: Path) -> None:
    """A rank that writes nothing still runs all steps, so that no collective is left alone.

    These are the steps in the trace, and the one before.
    """
    step = Step()
    path = tmp_path / name if name else None
    profile(step, section=ProfilingSection(steps=4), device=CPU, path=path)
    assert step.calls == 5
    assert [file.name for file in tmp_path.iterdir()] == ([name] if name else [])


def test_shapes_are_recorded_when_asked(tmp_path: Path) -> None:
    """``profiling.record_shapes`` puts the shapes of inputs into the trace."""
    path = tmp_path / "trace.json"
    profile(Step(), section=ProfilingSection(steps=1, record_shapes=True), device=CPU, path=path)
    events = json.loads(path.read_text())["traceEvents"]
    (product,) = [event for event in events if event["name"] == "aten::mm"]
    assert product["args"]["Input Dims"] == [[4, 4], [4, 4]]


def test_an_older_trace_is_replaced_whole(tmp_path: Path) -> None:
    """A second profile takes the place of the first."""
    path = tmp_path / "trace.json"
    path.write_text("old")
    profile(Step(), section=ProfilingSection(steps=1), device=CPU, path=path)
    assert "aten::mm" in names(path)


def test_a_step_that_raises_leaves_the_older_trace(tmp_path: Path) -> None:
    """Nothing is written for steps that did not end; the error is the step's own."""

    def fail() -> None:
        raise ZeroDivisionError

    path = tmp_path / "trace.json"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError):
        profile(fail, section=ProfilingSection(), device=CPU, path=path)
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("trace.json", "old")]


def in_a_file(folder: Path) -> Path:
    (folder / "file").write_text("")
    return folder / "file" / "trace.json"


def in_place_of_a_folder(folder: Path) -> Path:
    (folder / "trace.json" / "full").mkdir(parents=True)
    return folder / "trace.json"


@pytest.mark.parametrize("where", [in_a_file, in_place_of_a_folder])
def test_a_trace_that_cannot_be_written_is_an_error_of_results(
    where: Callable[[Path], Path], tmp_path: Path
) -> None:
    """The message names the file."""
    path = where(tmp_path)
    with pytest.raises(ResultsError, match=r"cannot write the profile to .*trace\.json"):
        profile(Step(), section=ProfilingSection(steps=1), device=CPU, path=path)
    assert not list(tmp_path.rglob(".trace-*"))


@pytest.mark.skipif(sys.platform == "win32", reason="no limit of file sizes")
def test_a_trace_cut_short_is_not_kept(tmp_path: Path) -> None:
    """Where the disk takes only a part, the older trace stays and the error says why."""
    import resource

    path = tmp_path / "trace.json"
    path.write_text("old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, before[1]))
    try:
        with pytest.raises(ResultsError, match=r"cannot write the profile to .*trace\.json"):
            profile(Step(), section=ProfilingSection(steps=20), device=CPU, path=path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("trace.json", "old")]
