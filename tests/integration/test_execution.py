"""Graph breaks, recompilations and host reads of a user's benchmarks: recorded, gated, placed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.cli.main import main
from tests.support.projects import InlineProject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.projects import Run

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.calls = nn.Linear(8, 8), 0

    def forward(self, x):
        y = self.layer(x)
        return self.layer(y)
"""
PLANTED = MODEL.replace(
    "        y = self.layer(x)\n",
    """\
        self.calls += 1
        y = self.layer(x) * self.calls
        if y.sum() > 0:
            y = y + 1
""",
)
BENCHMARKS = """
import pytest, torch
from torch import nn
from model import Net

X = torch.randn(4, 8)

@pytest.mark.gpubench(limits={"recompiles": "<=0", "host_syncs": "<=0"})
def test_net(gpubench):
    net = torch.compile(Net(), backend="eager")
    gpubench(lambda: net(X))
"""
SHIPPED = [
    f"benchmarks/{path}.py"
    for path in (
        *(f"training/test_{name}" for name in ("mlp", "llama", "bert")),
        *(f"inference/test_{name}" for name in ("mlp", "llama", "bert")),
    )
]
COUNTS = ("graph_breaks", "recompiles", "host_syncs", "device_to_host_bytes")


def counted(run: Run) -> Mapping[str, tuple[dict[str, float], dict[str, list[str]]]]:
    """Counts and places of the latest run by name."""
    summaries = [directory / "summary.json" for directory in run.directories]
    # By time of writing: names of runs that start in one second are in no order.
    latest = max(summaries, key=lambda path: path.stat().st_mtime_ns)
    summary = json.loads(latest.read_text())
    return {
        each["name"]: (
            {name: each["metrics"][name]["value"] for name in (*COUNTS, "compiled_graphs")},
            each["correctness"].get("places", {}),
        )
        for each in summary["benchmarks"]
        if each["outcome"] == "measured"
    }


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> InlineProject:
    made = InlineProject(tmp_path_factory.mktemp("net"))
    made.write("test_net.py", BENCHMARKS)
    return made


def test_planted_counts_fail_the_gate_by_name_and_line(
    project: InlineProject, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the head has and the base has not is named by gate, comparison and record."""
    project.write("model.py", MODEL)
    clean = project.run("--baseline=last", "--gate=threshold")
    counts, places = counted(clean)["test_net"]
    assert (clean.code, [counts[name] for name in COUNTS]) == (0, [0.0] * 4)
    assert counts["compiled_graphs"] == 1.0
    assert places.keys() == {"compiled_graphs"}

    project.write("model.py", PLANTED)
    planted = project.run("--baseline=last", "--gate=threshold")
    counts, places = counted(planted)["test_net"]
    assert (counts["graph_breaks"], counts["host_syncs"]) == (1.0, 1.0)
    assert counts["recompiles"] >= 1.0
    line = PLANTED.splitlines().index("        if y.sum() > 0:") + 1
    assert places["host_syncs"] == [f"model.py:{line} in forward: if y.sum() > 0:"]
    assert places["graph_breaks"] == [f"model.py:{line} in forward: a branch"]
    assert planted.code == 1
    text = " ".join(planted.out.split())
    assert f"first in {places['host_syncs'][0]}" in text
    assert f"first in {places['recompiles'][0]}" in text
    assert f"graph_breaks was 0, is 1, first in {places['graph_breaks'][0]}" in text

    monkeypatch.chdir(project.path)
    base, head = map(str, planted.directories)
    for form in ("json", "markdown"):
        capsys.readouterr()
        assert main(["compare", base, head, f"--format={form}"]) == 1
        assert f"model.py:{line} in forward" in capsys.readouterr().out
    assert main(["report", base, head]) == 0
    assert f"model.py:{line} in forward" in (project.path / "report.html").read_text()


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_shipped_models_are_clean(checkout: InlineProject, optimizer: str) -> None:
    """Trained and inferred, none reads the device, breaks a graph or is compiled again."""
    compiled = ("--model.compile=default", "--model.compile_backend=eager")
    options = (f"--training.optimizer={optimizer}", "--world-size=1", "-k", "_train or _infer")
    run = checkout.run(*SHIPPED, *compiled, *options)
    sums = {name: sum(counts[n] for n in COUNTS) for name, (counts, _) in counted(run).items()}
    assert sums == dict.fromkeys(sums, 0.0)
    assert all(counts["compiled_graphs"] for counts, _ in counted(run).values())
    assert len(sums) >= 5
