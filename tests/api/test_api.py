"""The functions that run benchmarks and read runs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gpubench_plugin
from gpubench_plugin import UsageProblem

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "own-suite"

TOLD = """
import json, os, sys
from pathlib import Path
Path("arguments.json").write_text(json.dumps(sys.argv[1:]))
sys.exit(5)
"""


@pytest.fixture
def arguments(tmp_path, monkeypatch):
    """What pytest would be told: the Python that is started only writes down its arguments."""
    script = tmp_path / "python"
    script.write_text(f"#!{sys.executable}\n{TOLD}")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))

    def told(*selection, **flags):
        with pytest.raises(UsageProblem, match="no benchmark was selected"):
            gpubench_plugin.run(*selection, cwd=tmp_path, **flags)
        return json.loads((tmp_path / "arguments.json").read_text())

    return told


def test_flags_become_arguments_by_their_long_names(arguments):
    """Lists are joined by commas, keys and files repeated, True stands alone, None is left out."""
    assert arguments(
        "benchmarks",
        Path("more"),
        keyword="resnet and train",
        keys={"training.batch_size": 64, "experiment.notes": "a b", "training.steps": None},
        options=["-x"],
        precision=["fp32", "amp"],
        world_size=2,
        config=["a.yaml", Path("b.yaml")],
        isolate=True,
        adopt=False,
        tag=None,
        baseline="main",
        gate=True,
    ) == [
        *("-m", "pytest", "benchmarks", "more", "-k", "resnet and train"),
        *("--gpubench-precision=fp32,amp", "--gpubench-world-size=2"),
        *("--gpubench-config=a.yaml", "--gpubench-config=b.yaml", "--gpubench-isolate"),
        *("--gpubench-baseline=main", "--gpubench-gate=auto"),
        *("--gpubench-set=training.batch_size=64", "--gpubench-set=experiment.notes=a b"),
        *("--gpubench-set=training.steps=null", "-x"),
    ]


def test_a_mistyped_flag_is_answered_with_the_nearest():
    """Nothing is started; the message names what there is."""
    with pytest.raises(UsageProblem, match=r"unknown 'precison' \(did you mean 'precision'"):
        gpubench_plugin.run(precison="amp")


@pytest.fixture(scope="module")
def own_suite(tmp_path_factory):
    """The documented example, copied out of this repository, and what its script said."""
    folder = tmp_path_factory.mktemp("elsewhere") / "own-suite"
    shutil.copytree(EXAMPLE, folder)
    done = subprocess.run(
        [sys.executable, "nightly.py", "64 or classifier"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    return folder, done


def test_the_example_measures_a_folder_of_its_own(own_suite):
    """A folder outside this repository needs nothing but the plugin: own and packaged parts run."""
    _, done = own_suite
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split()[:2] for line in done.stdout.splitlines()[-4:]]
    assert lines == [
        ["measured", f"test_{name}]"]
        for name in (
            "attention[64-fp32-ws1",
            "attention[64-bf16-ws1",
            "classifier_train[fp32-ws1",
            "classifier_train[bf16-ws1",
        )
    ]


def test_a_run_is_loaded_by_folder_file_or_id(own_suite):
    """All of them give the same record, with the samples and the benchmark's own metric."""
    folder, _ = own_suite
    (path,) = (folder / "results" / "own-suite").iterdir()
    record = gpubench_plugin.load_run(path)
    assert record == gpubench_plugin.load_run(path / "summary.json")
    assert record == gpubench_plugin.load_run(path.name[:18], results_dir=folder / "results")
    attention = record.benchmarks[0]
    assert (record.status, attention.metrics["score_bytes"].value) == ("complete", 131072.0)
    assert attention.samples is not None


def test_what_pytest_refuses_is_a_usage_problem(own_suite):
    """A wrong value ends in one message, without a traceback and without a run."""
    folder, _ = own_suite
    with pytest.raises(UsageProblem, match=r"^--precision: unknown 'ampp' \(did you mean 'amp'"):
        gpubench_plugin.run(".", precision="ampp", cwd=folder, quiet=True)


def test_a_run_that_is_not_there_is_named(tmp_path):
    """An unknown id is answered with the folder that was searched."""
    with pytest.raises(UsageProblem, match="begins with 'nosuch'"):
        gpubench_plugin.load_run("nosuch", results_dir=tmp_path)
