"""``gpubench explain``, as a user types it."""

from __future__ import annotations

import io
import json
import sys
from functools import partial
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from gpubench_plugin.cli.ab.request import Request
from gpubench_plugin.cli.ab.saved_state import SavedState
from gpubench_plugin.cli.main import main
from gpubench_plugin.core.records import Samples
from gpubench_plugin.core.verdicts import Verdict
from tests.support import runs_builder
from tests.support.messages import mentions
from tests.support.runs_builder import MLP, RESNET, run_id

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpubench_plugin.results.run_directory import RunDirectory

    Shell = Callable[..., tuple[int, str, str]]


@pytest.fixture
def shell(run_command: Shell) -> Shell:
    """Runs ``gpubench explain``."""
    return partial(run_command, "explain")


def write_run(results: Path, number: int, times: dict[str, float] | None = None) -> RunDirectory:
    """A run with the configurations of its benchmarks."""
    times = times or {MLP: 0.010}
    directory = runs_builder.write_run(results, number, times)
    configurations = {name: {"distributed": {"world_size": 1}} for name in times}
    directory.config_resolved.write_text(json.dumps(configurations))
    return directory


def write_comparison(results: Path, number: int, cwd: Path) -> Path:
    """A comparison that has begun, and measured nothing."""
    folder = results / "ab" / run_id(number, "ab")
    folder.mkdir(parents=True)
    request = Request(here=cwd, base="main")
    SavedState(folder=folder, request=request, identity={}, seed=0).write()
    return folder


def test_a_run_is_named_by_id_folder_or_last_and_a_benchmark_by_a_part(
    shell: Shell, results: Path
) -> None:
    """All say the same page, which fits 80 columns."""
    write_run(results, 0, {MLP: 0.010})
    directory = write_run(results, 1, {MLP: 0.010, RESNET: 0.020})

    code, page, err = shell(directory.run_id, "mlp")

    assert (code, err) == (0, "")
    assert page.splitlines()[0] == MLP
    assert f"run {directory.run_id}: measured, not compared" in page
    assert max(map(len, page.splitlines())) <= 80
    for text in (directory.run_id[:13], str(directory.path), "last"):
        assert shell(text, MLP) == (0, page, "")
    code, out, _ = shell("last", "mlp", "--format=json")
    assert json.loads(out)["benchmark"] == MLP


def test_a_picture_shows_the_values_that_the_page_is_about(shell: Shell, results: Path) -> None:
    """Of what was not measured there is none, and one line says so."""
    samples = Samples(
        timer="perf_counter",
        durations_s=(0.0101, 0.0123),
        block_s=(0.0224,),
        block_calls=(2,),
        first_step_s=None,
        warmup_s=(),
        warmup_calls=0,
    )
    benchmarks = [
        runs_builder.measurement(samples=samples),
        runs_builder.measurement(RESNET, outcome="failed"),
    ]
    directory = runs_builder.write_run(results, 0, benchmarks)
    directory.config_resolved.write_text(json.dumps({MLP: {}, RESNET: {}}))
    code, out, err = shell("last", "mlp", "--format=svg")
    assert (code, err) == (0, "")
    root = ElementTree.fromstring(out)
    titles = [element.text for element in root.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == [MLP, "round 1: 10.10 ms", "round 2: 12.30 ms"]
    code, out, err = shell("last", RESNET, "--format=svg")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"--format=svg: nothing of {RESNET} was measured" in err


def test_of_a_run_that_could_be_compared_with_nothing_its_rounds_are_shown(
    shell: Shell, results: Path
) -> None:
    """Beside the verdict that says so."""
    directory = write_run(results, 0)
    nothing = Verdict(id=MLP, kind="no_baseline", reason="there is no run to compare with")
    runs_builder.write_verdicts(directory, [nothing])

    code, page, _ = shell("last", "mlp")

    assert code == 0
    assert "no baseline: there is no run to compare with" in page
    assert "based on\n  step_time_s: median 10.00 ms" in page
    assert "what helps" in page


def test_a_comparison_is_named_by_id_folder_or_last(
    shell: Shell, results: Path, tmp_path: Path
) -> None:
    """The latest of runs and comparisons counts; this one has nothing to explain yet."""
    write_run(results, 0)
    folder = write_comparison(results, 1, tmp_path)

    for text in (folder.name, folder.name[:12], f"results/ab/{folder.name}", str(folder), "last"):
        code, _, err = shell(text, "mlp")
        assert code == 2
        assert mentions(err, "no pair is complete", "gpubench ab --resume=")
    write_run(results, 2)
    assert shell("last", "mlp")[0] == 0


def test_what_cannot_be_explained_is_one_message(
    shell: Shell, results: Path, tmp_path: Path
) -> None:
    """Nothing there, several, unknown benchmarks, formats, and broken files; exit code 2 or 4."""
    assert shell("last", "mlp")[2].startswith(f"gpubench: last: {results} has 0 runs")
    directory = write_run(results, 0, {MLP: 0.010, RESNET: 0.020})
    for arguments, message in (
        (("last", "train"), f"'train' matches 2 benchmarks of the run {run_id(0)}"),
        (("last", "mpl_train"), "did you mean"),
        (("2099", "mlp"), "no run in"),
        (("", "mlp"), "RUN: empty"),
        (("last", "mlp", "--format=html"), "--format: unknown 'html'"),
    ):
        code, out, err = shell(*arguments)
        choices = 2 if "matches" in message else 0
        assert (code, out, err.count("\n")) == (2, "", 1 + choices)
        assert message in err
    comparison = write_comparison(results, 0, tmp_path)
    code, _, err = shell(run_id(0)[:12], "mlp")
    assert code == 2
    assert f"2 runs and comparisons start with {run_id(0)[:12]!r}: {comparison.name}" in err
    assert "the latest comparisons: " + comparison.name in shell("2099", "mlp")[2]
    directory.config_resolved.write_text("{}")
    code, out, err = shell(run_id(0), "mlp")
    assert (code, out, err.count("\n")) == (4, "", 1)
    assert f"config_resolved.yaml has no configuration for {MLP}" in err
    directory.verdicts.write_text("{")
    code, out, err = shell(run_id(0), "mlp")
    assert (code, out, err.count("\n")) == (4, "", 1)
    assert "verdicts.json" in err


def test_an_ascii_terminal_gets_ascii(
    shell: Shell, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes from a file and it cannot show is an escape."""
    write_run(results, 0, {"test_µ.py::test_µ": 0.00001})
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)

    assert main(("explain", "last", "test_")) == 0

    stream.seek(0)
    text = stream.read()
    assert text.isascii()
    assert "test_\\xb5.py" in text
    assert "10.00 us" in text
