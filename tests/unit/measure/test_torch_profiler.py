"""The trace of a step, and the same steps without one."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from gpubench_plugin.config.sections import ProfilingSection
from gpubench_plugin.core.errors import ResultsError
from gpubench_plugin.measure.probes import profiler
from gpubench_plugin.measure.probes.profiler import operator_table, profile

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


def names_in(path: Path) -> list[str]:
    return [event["name"] for event in json.loads(path.read_text())["traceEvents"]]


def test_trace_holds_the_operations_of_every_step(tmp_path: Path) -> None:
    """The file is valid JSON with each step and its operations; nothing is left beside it."""
    path = tmp_path / "traces" / "test_mlp[fp32].json"
    profile(Step(), section=ProfilingSection(steps=2), device=CPU, path=path)
    found = names_in(path)
    assert [found.count(name) for name in ("aten::mm", "step 0", "step 1", "step 2")] == [
        2,
        1,
        1,
        0,
    ]
    assert [path] == list(path.parent.iterdir())


def test_operators_are_counted_per_step(tmp_path: Path) -> None:
    """Of three traced steps one step's calls and time are told, without spans of whole steps."""
    table = profile(Step(), section=ProfilingSection(steps=3), device=CPU, path=tmp_path / "t.json")
    assert table is not None
    calls = {row["name"]: row["calls"] for row in table["operators"]}
    assert (calls["aten::mm"], calls["aten::ones"]) == (1.0, 2.0)
    assert not {"step 0", "ProfilerStep*"} & calls.keys()
    assert (table["time_of"], table["steps"]) == ("cpu", 3)
    ones = next(row for row in table["operators"] if row["name"] == "aten::ones")
    assert 0 < ones["self_s"] < ones["total_s"] < 1  # it calls aten::empty and aten::fill_


def averaged(key: str, *, device: str = "CPU", count: int = 2, **times_us: float) -> Any:
    times = dict.fromkeys(
        ("self_cpu_time_total", "cpu_time_total", "self_device_time_total", "device_time_total"),
        0.0,
    )
    place = SimpleNamespace(name=device)
    is_span = key.startswith("step ")
    return SimpleNamespace(
        key=key,
        device_type=place,
        count=count,
        is_user_annotation=is_span,
        **{**times, **times_us},
    )


def test_operators_of_a_device_are_ordered_by_its_time() -> None:
    """By the time of their kernels, which are no operators themselves."""
    averages = [
        averaged("step 0", self_device_time_total=50.0),
        averaged("kernel", device="CUDA", self_device_time_total=40.0),
        averaged("aten::add", self_cpu_time_total=9.0, self_device_time_total=10.0),
        averaged("aten::mm", count=8, self_device_time_total=30.0, device_time_total=36.0),
        averaged("cudaLaunchKernel", self_cpu_time_total=99.0),
        *(averaged(f"tiny {n}", self_device_time_total=1e-6) for n in range(30)),
    ]
    table = operator_table(averages, steps=2, on_device=True)
    first, second, *rest = table["operators"]
    assert first == {
        "name": "aten::mm",
        "calls": 4.0,
        "self_s": pytest.approx(15e-6),
        "total_s": pytest.approx(18e-6),
    }
    assert (second["name"], len(rest), table["time_of"]) == ("aten::add", 31, "device")
    assert rest[-1] == {"name": "cudaLaunchKernel", "calls": 1.0, "self_s": 0.0, "total_s": 0.0}


def test_kernels_of_a_device_are_counted_per_step() -> None:
    """Neither copies and fills, nor spans of the host that are drawn on the device."""
    averages = [
        averaged("ampere_sgemm_128x64_tn", device="CUDA", count=6),
        averaged("void at::native::reduce_kernel<512>", device="CUDA", count=2),
        averaged("Memcpy DtoH (Device -> Pageable)", device="CUDA", count=4),
        averaged("Memset (Device)", device="CUDA", count=4),
        averaged("step 0", device="CUDA", count=1),
        averaged("aten::mm", count=6),
    ]
    assert operator_table(averages, steps=2, on_device=True)["kernels"] == 4.0
    assert "kernels" not in operator_table(averages, steps=2, on_device=False)


def test_operators_that_use_no_device_are_ordered_by_the_processors_time() -> None:
    """A step that leaves a device idle has a table as well; one without operators an empty one."""
    averages = [averaged("aten::add", self_cpu_time_total=8.0), averaged("aten::mm")]
    table = operator_table(averages, steps=2, on_device=True)
    names = [row["name"] for row in table["operators"]]
    assert (table["time_of"], names) == ("cpu", ["aten::add", "aten::mm"])
    empty = operator_table([averaged("step 0")], steps=2, on_device=True)
    assert empty["operators"] == []


def test_python_functions_have_names_and_work() -> None:
    """Of stacks: no addresses, and none of the threads that wait meanwhile."""
    keys = (
        *(f"<built-in method reduce of numpy.ufunc object at 0x7f996a15d{n}40>" for n in (8, 9)),
        "test_n.py(4): step",
        *("threading.py(295): wait", "<method 'acquire' of '_thread.lock' objects>"),
        *("/x/gpubench_plugin/session/interruption.py(164): _notice", "threading.py(1): run"),
    )
    averages = [averaged(key, self_cpu_time_total=1.0) for key in keys]
    table = operator_table(averages, steps=1, on_device=False)
    calls = {row["name"]: row["calls"] for row in table["operators"]}
    assert calls == {"numpy.ufunc.reduce": 4, "test_n.py(4): step": 2}


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
    events = names_in(path)
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
    assert "step 1" in names_in(path)


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


@pytest.mark.parametrize("fails", [False, True])
def test_an_older_trace_is_replaced_whole_or_stays(tmp_path: Path, fails: bool) -> None:
    """Nothing is written for steps that did not end; the error is the step's own."""
    path = tmp_path / "trace.json"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError) if fails else nullcontext():
        step = (lambda: 1 / 0) if fails else Step()
        profile(step, section=ProfilingSection(steps=1), device=CPU, path=path)
    assert (path.read_text() == "old") is fails
    assert list(tmp_path.iterdir()) == [path]


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
