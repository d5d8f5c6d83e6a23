"""The functions that run benchmarks and read runs."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from time import monotonic

import pytest

import gpubench_plugin
from gpubench_plugin.core.errors import GpubenchError, UsageProblem
from gpubench_plugin.session import api

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "own-suite"

TOLD = """
import json, os, sys
from pathlib import Path
Path("arguments.json").write_text(json.dumps(sys.argv[1:]))
sys.exit(5)
"""


ORPHAN = """
import subprocess, sys
print("E   a module is missing")
subprocess.Popen(["sleep", "30"])
for number in range(20_000):
    print("line", number, file=sys.stderr)
sys.exit(2)
"""

STUBBORN = """
import signal, sys, time
from pathlib import Path
signal.signal(signal.SIGTERM, lambda *_: (Path("ended").touch(), sys.exit(2)))
Path("started").touch()
time.sleep(30)
"""

STOPPED = """
import pytest
def test_first(gpubench):
    gpubench(lambda: sum(range(1000)))
def test_second(gpubench):
    pytest.exit("enough", returncode=2)
def test_third(gpubench):
    gpubench(lambda: None)
"""


@pytest.fixture
def python_is(tmp_path, monkeypatch):
    """Puts a script in the place of the Python that is started."""

    def replaced(text):
        script = tmp_path / "python"
        script.write_text(f"#!{sys.executable}\n{text}")
        script.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(script))

    return replaced


@pytest.fixture
def arguments(tmp_path, python_is):
    """What pytest would be told: the Python that is started only writes down its arguments."""
    python_is(TOLD)

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
        keys={
            "training.batch_size": 64,
            "experiment.notes": "a b",
            "training.steps": None,
            "data.path": Path("/a b"),
        },
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
        *("--gpubench-set=training.steps=null", "--gpubench-set=data.path=/a b", "-x"),
    ]


def test_what_no_argument_can_be_is_refused():
    """Nothing is started; the message names the nearest."""
    with pytest.raises(UsageProblem, match=r"argument 'precison' \(did you mean 'precision'"):
        gpubench_plugin.run(precison="amp")


def test_a_script_that_pytest_imports_starts_no_pytest(monkeypatch):
    """Else each would start the next, without end."""
    monkeypatch.setenv("GPUBENCH_RUN_FILE", "somewhere")
    with pytest.raises(UsageProblem, match="if __name__"):
        gpubench_plugin.run("script.py")


@pytest.mark.parametrize("quiet", [False, True])
def test_the_end_of_a_long_output_is_kept(tmp_path, python_is, capfd, quiet):
    """Nobody waits for a process that pytest has left behind, and all is shown but when quiet."""
    python_is(ORPHAN)
    began = monotonic()
    with pytest.raises(GpubenchError, match="exit code 2 before a benchmark ran") as raised:
        gpubench_plugin.run(cwd=tmp_path, quiet=quiet)
    assert monotonic() - began < 20
    said, shown = str(raised.value), capfd.readouterr()
    assert "line 19999" in said
    assert "line 0\n" not in said
    assert ("a module is missing" in said) == quiet  # it stands where the output goes
    assert ("line 0\n" in shown.err, "missing" in shown.out) == (not quiet, not quiet)


def test_an_interruption_ends_pytest(tmp_path, python_is, monkeypatch):
    """Where no terminal tells pytest of it, it is asked to end, and then is gone."""
    python_is(STUBBORN)
    monkeypatch.setattr(api, "_GRACE_S", 2.0)

    def interrupt():
        while not (tmp_path / "started").exists():
            threading.Event().wait(0.05)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        gpubench_plugin.run(cwd=tmp_path)
    assert (tmp_path / "ended").exists()


def test_a_run_that_pytest_interrupts_is_read_as_far_as_it_came(tmp_path):
    """Folders are seen from `cwd`; what was not reached is not measured."""
    (tmp_path / "test_it.py").write_text(STOPPED)
    run = gpubench_plugin.run(
        "test_it.py", cwd=tmp_path, results_dir="runs", registry="none", quiet=True
    )
    assert run.status == "interrupted"
    assert [b.outcome for b in run.benchmarks][::2] == ["measured", "not_measured"]
    assert len(list((tmp_path / "runs" / "default").iterdir())) == 1


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


@pytest.mark.exhaustive
def test_the_example_measures_a_folder_of_its_own(own_suite):
    """A folder outside this repository needs nothing but the plugin: own and packaged parts run."""
    _, done = own_suite
    assert done.returncode == 0, done.stdout + done.stderr
    first, *lines = done.stdout.splitlines()
    assert re.fullmatch(r"\w+_nightly_\w+: complete", first)
    rows = (re.match(r"  (\w+\[\S+\]) ", line) for line in lines)
    names = list(dict.fromkeys(row[1] for row in rows if row))  # a remark may repeat one
    assert names == [
        *("attention[64-fp32]", "attention[64-bf16]"),
        *("classifier_train[fp32]", "classifier_train[bf16]"),
    ]


@pytest.mark.exhaustive
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


@pytest.mark.exhaustive
def test_what_pytest_refuses_is_a_usage_problem(own_suite):
    """A wrong value ends in one message, without a traceback and without a run."""
    folder, _ = own_suite
    with pytest.raises(UsageProblem, match=r"^--precision: unknown 'ampp' \(did you mean 'amp'"):
        gpubench_plugin.run(".", precision="ampp", cwd=folder, quiet=True)


def test_a_run_that_is_not_there_is_named(tmp_path):
    """An unknown id is answered with the folder that was searched."""
    with pytest.raises(UsageProblem, match="starts with 'nosuch'"):
        gpubench_plugin.load_run("nosuch", results_dir=tmp_path)
