"""The page of what a run on a GPU says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.reports.github import prose
from tools.generate import gpu

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.support.projects import Project

PAGE = """# On a GPU

No measurement yet.

## What a run on an NVIDIA H200 says

of an earlier run

## What is shown without a GPU, and what is not

all of it
"""
REPORT = """<testsuites><testsuite timestamp="2026-12-02T10:00:00">
<testcase classname="tests.gpu.test_a" name="test_good"/>
<testcase classname="tests.gpu.test_a" name="test_left_out">
<skipped message="no *Triton*"/></testcase>
{bad}</testsuite></testsuites>"""
EARLIER = """<testsuites><testsuite timestamp="2026-12-01T10:00:00">
<testcase classname="tests.gpu.test_a" name="test_good"><failure/></testcase><testcase time="0"/>
</testsuite></testsuites>"""
BAD = '<testcase classname="tests.gpu.test_a" name="test_bad"><failure/></testcase>'
RESNET = "test_resnet50_train[channels_last-compiled-amp]"


def benchmark(name: str, outcome: str = "measured", **fields: Any) -> dict[str, Any]:
    return {
        "id": f"benchmarks/a.py::{name}",
        "name": name,
        "outcome": outcome,
        "reason": "",
        "params": {"precision": "amp"},
        "flags": [],
        "limits": {},
        "metrics": {},
        **fields,
    }


def metrics(**values: tuple[float, str]) -> dict[str, dict[str, Any]]:
    return {name: {"value": value, "unit": unit} for name, (value, unit) in values.items()}


def headline(error: float) -> dict[str, Any]:
    return benchmark(
        RESNET,
        flags=["throttled"],
        limits={"from_hand_loop": "<=0.005", "samples_per_s": ">=3100", "step_time_s": "3%"},
        metrics=metrics(
            step_time_s=(0.08, "s"),
            step_time_ci_low_s=(0.079, "s"),
            step_time_ci_high_s=(0.081, "s"),
            samples_per_s=(3150.0, "samples/s"),
            mfu=(0.47, "fraction"),
            peak_memory_bytes=(2.0**34, "bytes"),
            hand_loop_s=(0.0799, "s"),
            from_hand_loop=(error, "fraction"),
        ),
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of runs, and a page of its own."""
    page = tmp_path / "gpu.md"
    page.write_text(PAGE, encoding="utf-8")
    monkeypatch.setattr(gpu, "PAGE", page)
    return tmp_path


def write(folder: Path, *runs: Mapping[str, Any] | list[dict[str, Any]], bad: str = "") -> None:
    """Runs of these benchmarks, oldest first, and a report of pytest."""
    for number, benchmarks in enumerate(runs):
        run = {
            "started": f"2026-12-0{number + 1}T10:00:00Z",
            "finished": f"2026-12-0{number + 1}T11:00:00Z",
            "environment": {
                "devices": {"cuda:0": "NVIDIA H200"},
                "gpu": {"driver": "580.1"},
                "torch": {"cuda": "13.0", "nccl": None},
                "packages": {"torch": "2.13.0"},
            },
            "benchmarks": benchmarks,
        }
        path = folder / f"run-{number}" / "summary.json"
        path.parent.mkdir()
        path.write_text(json.dumps(run), encoding="utf-8")
    (folder / "tests.xml").write_text(REPORT.format(bad=bad), encoding="utf-8")
    (folder / "tests-of-before.xml").write_text(EARLIER, encoding="utf-8")


def test_a_run_takes_the_place_of_the_earlier_one(folder: Path) -> None:
    """Its bounds, numbers, published figures, and what it does not show; the rest stays."""
    undone = benchmark("test_kernel", "skipped", reason="needs *Triton*", limits={"x": "<=1"})
    write(folder, [headline(0.2)], [headline(0.0012), undone])

    assert gpu.main([str(folder)]) == 0
    text = gpu.PAGE.read_text(encoding="utf-8")
    head, _, rest = PAGE.partition("\n## What a run on an NVIDIA H200 says\n\nof an earlier run\n")
    assert text.startswith(head)
    assert text.endswith(rest)
    assert "of an earlier run" not in text
    lines = text.splitlines()
    assert "## What a run on an NVIDIA H200 says" in lines
    assert any("driver 580.1, CUDA 13.0, torch 2.13.0" in line for line in lines)
    assert "Tests: 1 passed, 1 skipped." in lines
    assert f"| `{RESNET}` | from_hand_loop | 0.12% | `<=0.005` | yes |" in lines
    assert f"| `{RESNET}` | samples_per_s | 3150 samples/s | `>=3100` | yes |" in lines
    assert [line for line in lines if "| step_time_s |" in line] == []
    numbers = "80.00 ms | 79.00 ms to 81.00 ms | 3150 samples/s | 47% | 16.00 GiB | 79.90 ms"
    assert f"| `{RESNET}` | {numbers} | throttled |" in lines
    assert [line for line in lines if "3098 samples/s | H200" in line]
    assert "- `test_kernel`: needs `*Triton*`" in lines
    assert "- `tests.gpu.test_a::test_left_out`: no `*Triton*`" in lines
    goals = [line for line in lines if line.startswith("- goals")]
    assert goals == ["- goals of `test_llama_train[compiled-step-bf16]`"]


@pytest.mark.parametrize(
    ("benchmarks", "bad", "failed"),
    [
        ([headline(0.006)], "", f"{RESNET}: from_hand_loop"),
        ([benchmark("test_a", "oom", limits={"x": "<=1"})], "", "test_a: x"),
        ([headline(0.001)], BAD, "tests.gpu.test_a::test_bad"),
    ],
)
def test_what_failed_is_named(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    benchmarks: list[dict[str, Any]],
    bad: str,
    failed: str,
) -> None:
    """Exit code 1; a broken bound and a failed test stand on the page as such."""
    write(folder, benchmarks, bad=bad)

    assert gpu.main([str(folder)]) == 1
    assert capsys.readouterr().out == f"failed: {failed}\n"
    text = gpu.PAGE.read_text(encoding="utf-8")
    assert ("**failed**" if bad else "| **no** |") in text


def test_without_a_run_the_page_stays(folder: Path) -> None:
    """Nor is a run without a report of pytest one."""
    assert gpu.main([str(folder)]) == 1
    write(folder, [headline(0.001)])
    for report in folder.glob("*.xml"):
        report.unlink()
    assert gpu.main([str(folder)]) == 1
    assert gpu.PAGE.read_text(encoding="utf-8") == PAGE


def test_a_recorded_run_has_what_the_page_says(folder: Path, project: Project) -> None:
    """The summary of a session as it is written, on a CPU."""
    limit = '@pytest.mark.gpubench(limits={"step_time_s": "<=60"})'
    project.write(
        "test_it.py",
        f"import pytest\n\n{limit}\ndef test_it(gpubench, torch_device): gpubench(list)\n",
    )
    ran = project.run("--device=cpu", "--junitxml=tests.xml")
    (cpu,) = ran.summary["environment"]["devices"].values()
    for file in (ran.directory, project.path / "tests.xml"):
        file.rename(folder / file.name)

    assert gpu.main([str(folder)]) == 0
    text = gpu.PAGE.read_text(encoding="utf-8")
    assert f"## What a run on an {prose(cpu)} says" in text
    assert "| `test_it` | step_time_s |" in text


def test_records_of_other_devices_stay() -> None:
    """A device's own is replaced, or comes before them."""
    page = gpu.PAGE.read_text(encoding="utf-8")
    first = gpu.replaced(page, "## What a run on an A says\n\none\n")
    assert gpu.replaced(first, "## What a run on an A says\n\ntwo\n") == first.replace(
        "one\n", "two\n", 1
    )
    assert first.replace("## What a run on an A says\n\none\n\n", "") == page
