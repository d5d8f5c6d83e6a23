"""Stages of ``gpubench gpu-check`` pass and fail without a device, by what sessions tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.cli.doctor.machine import Machine
from gpubench_plugin.cli.gpu_check.stages import (
    STAGES,
    breadth,
    decode,
    facts,
    faults,
    headline,
    ranks,
    same_code,
    traces,
)
from gpubench_plugin.cli.gpu_check.stages import tests as test_stage
from gpubench_plugin.core.errors import Unsupported, UsageProblem
from gpubench_plugin.core.records import Comparison, Verdict
from gpubench_plugin.results import verdicts
from tests.support.gpu_stages import CannedRun, criteria, failed, measurement, session

if TYPE_CHECKING:
    from collections.abc import Sequence

RESNET = "benchmarks/training/test_resnet.py::test_resnet50_train"
LLAMA = "benchmarks/training/test_llama.py::test_llama_train"
REPOSITORY = Path(__file__).parents[4]


@pytest.fixture
def run(tmp_path: Path) -> CannedRun:
    """A run in this repository, whose files stages look for."""
    return CannedRun(folder=tmp_path, repository=REPOSITORY, limit_s=60)


def outcomes(*names: Any) -> Any:
    return session(*(measurement(f"test_it.py::test_{n}", outcome=n) for n in names), code=1)


def findings(run: CannedRun, kind: str) -> list[Any]:
    lines = map(json.loads, (run.folder / "progress.jsonl").read_text().splitlines())
    return [line[kind] for line in lines if kind in line]


def test_faults_that_cost_one_benchmark_pass(run: CannedRun) -> None:
    """Out of memory in one process; a lost context ends that one, and a gang goes on."""
    run.session = outcomes("measured", "oom", "measured")
    faults.out_of_memory(run)
    run.sessions = {
        "alone": outcomes("measured", "crashed", "not_measured"),
        "gang": outcomes("measured", "crashed", "measured"),
    }
    faults.lost_context(run)

    assert failed(run) == []


def test_faults_that_cost_more_fail(run: CannedRun) -> None:
    """The next benchmark failed as well, and the process was aborted."""
    run.session = outcomes("measured", "oom", "failed")
    faults.out_of_memory(run)
    assert failed(run) == ["one process: the benchmark after is measured"]
    run.sessions = {
        "alone": session(code=134),
        "gang": outcomes("measured", "crashed", "failed"),
    }
    faults.lost_context(run)
    assert {"one process: exit code", "gang: the benchmark after is measured"} < {*failed(run)}


def test_ranks_that_are_measured_pass_and_others_fail(run: CannedRun) -> None:
    """In a gang and under torchrun."""
    run.sessions = {"gang": session(measurement("test_it.py::test_exchange"))}
    run.session = session(measurement("test_it.py::test_exchange"))
    ranks.ranks(run)
    assert failed(run) == []
    run.folder = run.folder / "second"
    run.folder.mkdir()
    run.session = outcomes("failed")
    ranks.ranks(run)
    assert failed(run) == ["torchrun: exit code", "torchrun: the exchange is measured"]


def report(run: CannedRun, code: int, **counts: int) -> None:
    attributes = " ".join(f'{name}="{count}"' for name, count in counts.items())
    case = '<testcase classname="tests.a" name="test_a"><failure/></testcase>'
    text = f"<testsuites><testsuite {attributes}>{case if code else ''}</testsuite></testsuites>"

    def execute(command: Sequence[str]) -> int:
        (run.folder / "report.xml").write_text(text)
        return code

    run.on_execute = execute


def test_tests_that_pass(run: CannedRun) -> None:
    """Some ran, none failed."""
    report(run, 0, tests=45, failures=0, errors=0, skipped=2)
    test_stage.tests(run)
    assert failed(run) == []


def test_tests_that_fail_are_named(run: CannedRun) -> None:
    """With the exit code."""
    report(run, 1, tests=45, failures=1, errors=0, skipped=2)
    test_stage.tests(run)
    assert failed(run) == ["failures", "exit code"]
    assert findings(run, "facts")[0]["failed"] == ["tests.a::test_a"]


def test_skipped_tests_are_no_proof(run: CannedRun) -> None:
    """As without a device; nor is a report that was never written."""
    report(run, 0, tests=45, failures=0, errors=0, skipped=45)
    test_stage.tests(run)
    assert failed(run) == ["tests that ran"]
    (run.folder / "report.xml").unlink()
    run.on_execute = lambda _: None
    test_stage.tests(run)
    assert failed(run) == ["tests that ran", "failures", "errors", "exit code"]


def trace(folder: Path, *events: dict[str, Any]) -> Any:
    (folder / "traces").mkdir(parents=True)
    (folder / "traces" / "a.json").write_text(json.dumps({"traceEvents": events}))
    return session(measurement("test_a.py::test_a"), folder=folder)


def test_trace_and_snapshot(run: CannedRun, tmp_path: Path) -> None:
    """Kernels with durations pass, some without one fail; the peak is that of the history."""
    kernel = {"cat": "kernel", "dur": 2.5, "name": "gemm"}
    traces.check_trace(run, trace(tmp_path / "a", *[kernel] * 120).traces)
    history = [
        {"action": "alloc", "size": 100},
        {"action": "alloc", "size": 50},
        {"action": "free_requested", "size": 50},
        {"action": "free_completed", "size": 50},
        {"action": "alloc", "size": 20},
    ]
    traces.check_snapshot(run, history, 150.0)
    assert failed(run) == []
    traces.check_trace(run, trace(tmp_path / "b", *[kernel] * 120, {"cat": "kernel"}).traces)
    traces.check_snapshot(run, history, 170.0)
    assert failed(run) == ["kernels without a duration", "peak of the snapshot from that of torch"]


def test_graphs_are_counted_where_they_belong(run: CannedRun, tmp_path: Path) -> None:
    """Replayed in each step by graphs, never in eager steps."""
    replay = {"name": "cudaGraphLaunch", "cat": "cuda_runtime"}
    kernel = {"name": "gemm", "cat": "kernel"}
    graphs = {
        f"{execution}-{batch}": trace(
            tmp_path / execution / batch, kernel, *([replay] * 3 if execution != "eager" else [])
        )
        for execution in ("eager", "reduce-overhead")
        for batch in ("b1", "bmax")
    }
    run.sessions = graphs
    decode.decode(run)
    assert failed(run) == []
    assert len(findings(run, "row")) == 4
    run.sessions = {**graphs, "reduce-overhead-b1": graphs["eager-b1"]}
    decode.decode(run)
    assert failed(run) == ["reduce-overhead-b1: replays of a graph in 3 steps"]


def test_decoding_without_a_trace_is_no_proof(run: CannedRun) -> None:
    """Neither that graphs are replayed, nor that none are."""
    run.session = session(measurement("test_a.py::test_a"))
    decode.decode(run)
    assert {
        "eager-b1: kernels in the trace",
        "reduce-overhead-b1: replays of a graph in 3 steps",
    } < {*failed(run)}


def verdict_file(run: CannedRun, *kinds: Any, code: int) -> None:
    rows = tuple(Verdict(kind=kind, id=f"test_it.py::test_{n}") for n, kind in enumerate(kinds))
    text = verdicts.to_text([Comparison(base="base", head="head", verdicts=rows)])

    def execute(command: Sequence[str]) -> int:
        (file,) = (a.partition("=")[2] for a in command if a.startswith("--output="))
        Path(file).write_text(text)
        return code

    run.on_execute = execute


def test_same_code(run: CannedRun) -> None:
    """Nothing changed passes; a change, and a benchmark that failed, do not."""
    verdict_file(run, "unchanged", "inconclusive", "unchanged", "unchanged", code=0)
    same_code.same_code(run)
    assert failed(run) == []
    run.folder = run.folder / "second"
    run.folder.mkdir()
    verdict_file(run, "unchanged", "regressed", "errored", code=1)
    same_code.same_code(run)
    assert failed(run) == [
        "exit code",
        "benchmarks that were compared",
        "benchmarks called changed",
        "benchmarks without a verdict",
    ]


def test_same_code_that_stays_undecided_is_unproven(run: CannedRun) -> None:
    """No change was called, and no equality shown."""
    verdict_file(run, *["inconclusive"] * 4, code=0)
    same_code.same_code(run)
    assert failed(run) == []
    assert findings(run, "unproven")


def headline_session(run: CannedRun, number: int, node_id: str, bare_s: float, **m: float) -> Any:
    (run.folder / f"loops-{number}.json").write_text(json.dumps({node_id: bare_s}))
    return session(measurement(node_id, **m))


def test_headlines_beside_their_loops_and_goals(run: CannedRun) -> None:
    """On an H200, ResNet-50 with 3,150 images per second, as fast as its loop."""
    cases = ("channels_last-compiled-amp-ws1", "channels_last-amp-ws1")
    run.sessions = {
        f"headline-{n}": headline_session(
            run, n, f"{RESNET}[{case}]", 0.01, step_time_s=0.01002, samples_per_s=3150.0
        )
        for n, case in enumerate(cases)
    }
    headline.resnet50(run)

    assert failed(run) == []
    row = findings(run, "row")[0]
    assert (row["rate"], row["rate_unit"], row["bare_s"]) == (3150.0, "samples/s", 0.01)
    assert [band["value"] for band in row["bands"]] == [2470, 2790, 3098]
    assert any(name.endswith("samples_per_s") for name in criteria(run))


def test_a_headline_below_its_goal_and_beside_its_loop_fails(run: CannedRun) -> None:
    """Llama with an MFU of 41%, 2% slower than its loop; another has no loop."""
    cases = ("compiled-step-bf16-ws1", "bf16-ws1", "compiled-step-bf16-true-ws1")
    run.sessions = {
        f"headline-{n}": headline_session(
            run,
            n,
            f"{LLAMA}[{case}]",
            0.01,
            step_time_s=0.0102 if n == 0 else 0.01,
            mfu=0.41,
            tokens_per_s=1e5,
        )
        for n, case in enumerate(cases)
    }
    (run.folder / "loops-1.json").unlink()
    headline.llama(run)

    assert failed(run) == [
        "test_llama_train[compiled-step-bf16-ws1]: step from the loop by hand",
        "test_llama_train[compiled-step-bf16-ws1]: mfu",
        "test_llama_train[bf16-ws1]: step from the loop by hand",
    ]


def test_a_headline_that_is_not_measured_fails(run: CannedRun) -> None:
    """It has a row with the outcome."""
    node_id = f"{RESNET}[channels_last-compiled-b1024-amp-ws1]"
    run.session = session(measurement(node_id, outcome="oom"), code=1)
    headline.resnet50_b1024(run)

    assert len(failed(run)) == 3
    assert findings(run, "row")[0]["outcome"] == "oom"


def test_a_headline_without_mfu_says_so(run: CannedRun) -> None:
    """On a device whose peak is unknown; a rate is needed."""
    node_id = f"{RESNET}[channels_last-compiled-b1024-amp-ws1]"
    run.session = headline_session(run, 0, node_id, 0.01)
    headline.resnet50_b1024(run)

    assert [name.rpartition(": ")[2] for name in failed(run)] == ["rate"]
    assert "MFU" in findings(run, "unproven")[0]


def test_a_headline_that_does_not_run_fails(run: CannedRun) -> None:
    """As one whose name is not in the suite."""
    run.session = session(code=4)
    headline.resnet50_b1024(run)

    assert [name.rpartition(": ")[2] for name in failed(run)] == ["exit code", "benchmarks"]


def test_breadth_needs_a_number_of_each_selection(run: CannedRun) -> None:
    """One that failed, and one without a number, fail."""
    run.session = session(measurement("benchmarks/micro/test_gemm.py::test_matmul[fp32-ws1]"))
    breadth.breadth(run)
    assert failed(run) == []
    run.sessions = {
        "breadth-1": session(measurement("test_a.py::test_a", outcome="unsupported")),
        "breadth-2": outcomes("measured", "oom"),
    }
    breadth.breadth(run)
    assert [name.rpartition(": ")[2] for name in failed(run)] == [
        *("measured", "exit code", "failed"),
    ]


def test_breadth_that_is_cut_says_what_is_missing(run: CannedRun) -> None:
    """A session that was ended has rows, and shows nothing."""
    run.session = session(measurement("test_a.py::test_a"), code=None)
    breadth.breadth(run)
    assert criteria(run) == {}
    assert len(findings(run, "unproven")) == len(findings(run, "row")) == len(breadth.SELECTIONS)


def test_breadth_without_time_says_what_is_missing(tmp_path: Path) -> None:
    """Each selection is unproven."""
    run = CannedRun(folder=tmp_path, repository=REPOSITORY, limit_s=5)
    breadth.breadth(run)
    assert len(findings(run, "unproven")) == len(breadth.SELECTIONS)


@pytest.mark.parametrize(
    "stage",
    [traces.traces, decode.decode, headline.llama, breadth.breadth, test_stage.tests],
    ids=lambda stage: str(stage.__name__),
)
def test_outside_a_checkout_stages_of_the_suite_refuse(tmp_path: Path, stage: Any) -> None:
    """The reason names what is missing."""
    run = CannedRun(folder=tmp_path, repository=tmp_path, limit_s=60)
    with pytest.raises(UsageProblem, match="checkout"):
        stage(run)


TORCH = {
    "version": "2.11.0",
    "cuda": "13.0",
    "nccl": "2.28.9",
    "architectures": ["sm_90"],
    "devices": 1,
    "problem": "",
    "device": {"name": "cuda:0", "model": "NVIDIA H200", "memory_gib": 139.0},
    "precisions": {},
}


def machine(tmp_path: Path, **torch: Any) -> Machine:
    text = json.dumps({**TORCH, **torch})
    return Machine(root=tmp_path, torch_command=("echo", text))


@pytest.mark.slow
def test_facts_of_a_device(run: CannedRun, tmp_path: Path) -> None:
    """What torch tells is on record, with versions; without NVML the driver's fit is unknown."""
    facts.examine(run, machine(tmp_path))

    told = {key: value for fact in findings(run, "facts") for key, value in fact.items()}
    assert told["device"] == {"name": "NVIDIA H200"}
    assert told["versions"]["CUDA"] == "13.0"
    assert failed(run) == []


@pytest.mark.slow
def test_facts_that_do_not_fit_fail(run: CannedRun, tmp_path: Path) -> None:
    """A driver whose library does not answer."""
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").touch()
    facts.examine(run, machine(tmp_path))
    assert failed(run) == ["gpubench doctor: driver is ok"]


@pytest.mark.slow
def test_a_gpu_that_torch_does_not_find_fails(
    run: CannedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no missing GPU, whether torch has no CUDA or cannot be imported."""
    monkeypatch.setattr(Machine, "visible", {0: None})
    for torch in (machine(tmp_path, cuda=None, devices=0), Machine(torch_command=("false",))):
        with pytest.raises(Unsupported):
            facts.examine(run, torch)
    assert failed(run) == ["GPUs that torch finds"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("torch", "reason"),
    [
        ({"cuda": None, "devices": 0}, "torch 2.11.0 was built without CUDA"),
        (
            {"devices": 0},
            "torch 2.11.0 for CUDA 13.0 finds no GPU: no NVIDIA driver",
        ),
        (
            {"devices": 0, "problem": "The NVIDIA driver on your system is too old"},
            "torch 2.11.0 for CUDA 13.0 finds no GPU: The NVIDIA driver on your system is too old",
        ),
    ],
    ids=["no CUDA", "no driver", "old driver"],
)
def test_without_a_device_facts_say_why(
    run: CannedRun, tmp_path: Path, torch: Any, reason: str
) -> None:
    """The reason is that of every stage."""
    with pytest.raises(Unsupported, match=f"^{reason}$"):
        facts.examine(run, machine(tmp_path, **torch))


@pytest.mark.slow
def test_a_torch_that_cannot_be_examined_is_the_reason(run: CannedRun, tmp_path: Path) -> None:
    """As one that cannot be imported."""
    broken = Machine(root=tmp_path, torch_command=("sh", "-c", "echo no libcudart >&2; exit 1"))
    with pytest.raises(Unsupported, match="torch cannot be examined: no libcudart"):
        facts.examine(run, broken)


def test_every_stage_has_a_program_and_says_what_it_shows() -> None:
    """All modules are imported, and parts are complete."""
    from importlib import import_module

    for stage in STAGES:
        module, _, function = stage.program.partition(":")
        assert callable(getattr(import_module(module), function))
        assert stage.proves or stage.required
    assert {part for stage in STAGES for part in stage.parts} == {"proof", "speed"}
