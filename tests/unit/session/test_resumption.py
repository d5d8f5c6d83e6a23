"""Tests of whether an earlier run may go on."""

from __future__ import annotations

import json
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gpubench_plugin.config.settings import option_dest
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.environment.code import digests
from gpubench_plugin.results.recorder import Recorder
from gpubench_plugin.results.run_directory import RunDirectory
from gpubench_plugin.session.run import open_to_resume, refuse_other_place

if TYPE_CHECKING:
    from pathlib import Path

CONFIGURATION = {"distributed": {"world_size": 1}, "training": {"batch_size": 8}}
CONFIGURATIONS = {f"test_it.py::test_{letter}": CONFIGURATION for letter in "abcdefg"}
ENVIRONMENT = {
    "schema_version": 1,
    "hostname": "node-1",
    "cpu": {"model": "abacus"},
    "devices": {"cpu": "abacus", "cuda:0": "H200"},
    "gpu": {"devices": [{"locked_clock_mhz": 1200}]},
    "git": None,
}


def locked_at(mhz: int | None) -> dict[str, Any]:
    return {**ENVIRONMENT, "gpu": {"devices": [{"locked_clock_mhz": mhz}]}}


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run of seven benchmarks that was killed before the first."""
    return started(tmp_path, CONFIGURATIONS)


def started(tmp_path: Path, configurations: dict[str, Any]) -> RunDirectory:
    for name in ("test_it.py", "conftest.py"):
        file = tmp_path / "project" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("import os\n")
    directory = RunDirectory.create(tmp_path, "resnet", "20260131T120000Z_big_0a1b2c")
    Recorder.start(
        directory,
        command=["-k", "a or b"],
        environment=ENVIRONMENT,
        configurations=yaml.safe_dump(json.loads(json.dumps(configurations))),
        params={},
        code=digests(tmp_path / "project"),
    ).close()
    return directory


def opened(run: RunDirectory, **changes: Any) -> None:
    arguments: dict[str, Any] = {
        "environment": ENVIRONMENT,
        "configurations": CONFIGURATIONS,
        "rootdir": run.path.parents[1] / "project",
    }
    open_to_resume(run, **{**arguments, **changes}).journal.close()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"environment": {**ENVIRONMENT, "hostname": "node-2"}},
        {"environment": locked_at(None)},  # a GPU at work
        {"environment": {**ENVIRONMENT, "devices": {"cuda:0": "H200"}}},
        {"configurations": {"test_it.py::test_b": CONFIGURATION}},
    ],
)
def test_run_goes_on_under_the_same_conditions(run: RunDirectory, changes: dict[str, Any]) -> None:
    """Another node of the same kind, fewer benchmarks or devices, and flags that agree are fine."""
    opened(run, **changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"configurations": {**CONFIGURATIONS, "new.py::test_n": CONFIGURATION}},
            ["not part of the resumed run: new.py::test_n", "started with: pytest -k 'a or b'"],
        ),
        (
            {"configurations": {i: {**CONFIGURATION, "training": {}} for i in CONFIGURATIONS}},
            ["training.batch_size: 8 in the run, absent now (test_it.py::test_a, ", "and 2 more)"],
        ),
        (
            {"environment": {**ENVIRONMENT, "cpu": {"model": "rule"}, "git": {"commit": "c0"}}},
            ['cpu.model: "abacus" in the run, "rule" now', 'git.commit: absent in the run, "c0"'],
        ),
        (
            {"environment": {**ENVIRONMENT, "devices": {"cuda:1": "H200"}}},
            ['devices.cuda:1: absent in the run, "H200" now'],
        ),
        (
            {"environment": locked_at(1500)},
            ["gpu.devices.0.locked_clock_mhz: 1200 in the run, 1500 now"],
        ),
    ],
)
def test_other_conditions_are_refused(
    run: RunDirectory, changes: dict[str, Any], said: list[str]
) -> None:
    """The message names each key with both values; the run is unchanged and let go."""
    before = {p.name: p.read_bytes() for p in run.path.iterdir()}
    with pytest.raises(UsageProblem) as refused:
        opened(run, **changes)
    assert [words for words in said if words not in str(refused.value)] == []
    assert {p.name: p.read_bytes() for p in run.path.iterdir()} == before
    opened(run)


def test_other_code_is_refused(run: RunDirectory, tmp_path: Path) -> None:
    """Files that changed, are gone or are new are named, with what can be done."""
    project = tmp_path / "project"
    (project / "test_it.py").write_text("import os \n")
    (project / "conftest.py").unlink()
    with pytest.raises(UsageProblem, match=r"code: conftest\.py \(gone\), test_it\.py \(ch"):
        opened(run)


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"experiment": "resnet", "tag": "big", "results_dir": "."}, ""),
        ({"experiment": "mlp"}, r"--experiment=mlp conflicts .*'resnet'"),
        ({"tag": "small"}, r"--tag=small conflicts .*'big'"),
        ({"results_dir": "/other"}, "--results-dir=/other conflicts"),
    ],
)
def test_options_for_another_place_are_refused(
    run: RunDirectory, stated: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that agree are fine, and only the command line counts, not a key of the ini file."""
    monkeypatch.chdir(run.path.parents[1])
    given: Any = SimpleNamespace(**{"experiment": "x", "tag": "x", "results_dir": "x"} | stated)
    options = {option_dest(name.replace("_", "-")) for name in stated}
    config: Any = SimpleNamespace(getoption=lambda name: True if name in options else None)
    with pytest.raises(UsageProblem, match=said) if said else nullcontext():
        refuse_other_place(run, config, given)
