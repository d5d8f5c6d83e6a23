"""What ``gpubench history`` says of the numbers it shows."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gpubench_plugin.cli.main import main
from tests.support.runs_builder import MLP, measurement, write_run

MINIMA = {"step_time_s": (0.05138, "s", "lower"), "step_time_min_s": (0.04919, "s", "lower")}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results directory without a registry."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GPUBENCH_REGISTRY", raising=False)


def write_runs(*timers: str) -> None:
    for number, timer in enumerate(timers):
        write_run(Path("results"), number, [measurement(timer=timer, metrics=MINIMA)])


@pytest.mark.parametrize(
    ("timer", "metric", "absent"),
    [("perf_counter", "step_time_min_s", "51.38 ms"), ("cuda_events", "step_time_s", "49.19 ms")],
)
def test_history_shows_the_step_time_that_is_judged_under_its_own_name(
    capsys: pytest.CaptureFixture[str], timer: str, metric: str, absent: str
) -> None:
    """The minimum for a host clock, the median for a device clock; any other with ``--metric``."""
    write_runs(timer, timer)
    assert main(["history", "mlp"]) == 0
    out = capsys.readouterr().out
    assert f"{metric}: 2 runs" in out
    assert absent not in out
    assert main(["history", "mlp", "--metric=step_time_s"]) == 0
    out = capsys.readouterr().out
    assert "step_time_s: 2 runs" in out
    assert out.count("51.38 ms") == 4


def test_doubts_that_touch_the_metric_stand_in_each_row(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of a long call also its minimum; the value is marked."""
    for number, flags in enumerate([(), ("contended", "outliers"), ("suspended", "drifting")]):
        one = measurement(timer="perf_counter", metrics=MINIMA, flags=flags)
        write_run(Path("results"), number, [one])
    assert main(["history", "mlp", "--format=csv"]) == 0
    rows = [*csv.DictReader(io.StringIO(capsys.readouterr().out))]
    assert [row["doubts"] for row in rows] == ["", "contended", "drifting"]
    assert main(["history", "mlp"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "_run_" in line]
    assert [line.split()[1] for line in lines] == ["49.19", "≈", "≈"]
    assert [line.split()[-1] for line in lines] == ["main", "contended", "drifting"]
    assert main(["history", "mlp", "--format=json"]) == 0
    (history,) = json.loads(capsys.readouterr().out)["histories"]
    points = history["segments"][0]["points"]
    assert [point["doubts"] for point in points] == [[], ["contended"], ["drifting"]]


def test_a_series_says_in_what_it_differs(capsys: pytest.CaptureFixture[str]) -> None:
    """From the first one shown, by the keys of settings and facts, the clock among them."""
    for number, settings in enumerate([{}, {"measure.profile": "quick"}]):
        timer = ("perf_counter", "cuda_events")[number]
        one = measurement(timer=timer, metrics=MINIMA, settings=settings)
        write_run(Path("results"), number, [one])
    assert main(["history", "mlp"]) == 0
    second = "series 2 of 2 (differs from series 1 in clock, measure.profile)"
    assert second in " ".join(capsys.readouterr().out.split())


def test_without_a_run_the_place_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """The message says where it looked; documents name the metric that judges the latest run."""
    assert main(["history", "mlp"]) == 2
    assert f"in {Path.cwd() / 'results'} or its registry; measure" in capsys.readouterr().err
    write_runs("cuda_events", "perf_counter")
    assert main(["history", "mlp", "--format=json"]) == 0
    (document,) = json.loads(capsys.readouterr().out)["histories"]
    assert document["metric"] == "step_time_min_s"
    assert [series["points"][0]["value"] for series in document["segments"]] == [0.04919] * 2
    assert main(["history", "mlp", "--format=csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [float(row["value"]) for row in rows] == [0.04919] * 2
    assert {(row["benchmark"], row["metric"]) for row in rows} == {(MLP, "step_time_min_s")}


def test_every_measured_variant_of_a_name_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Skipped ones do not count; too many for a terminal are listed, but all are data."""
    names = [f"test_r.py::test_resnet50_train[{number}]" for number in range(9)]
    skipped = [measurement(name, outcome="unsupported") for name in names[2:]]
    write_run(Path("results"), 0, [*(measurement(name) for name in names[:2]), *skipped])
    assert main(["history", "resnet50_train"]) == 0
    assert capsys.readouterr().out.count("step_time_min_s: 1 run\n") == 2
    assert main(["history", "resnet50_train and 0]", "--metric=step_time_s"]) == 0
    assert capsys.readouterr().out.startswith(f"{names[0]}\nstep_time_s: 1 run\n")
    assert main(["history", "8"]) == 2
    assert "no measured benchmark of the runs" in capsys.readouterr().err
    assert main(["history", "resnet50_train", "--metric=speed"]) == 2
    assert "--metric: unknown 'speed'" in capsys.readouterr().err
    write_run(Path("results"), 1, [measurement(name) for name in names])
    assert main(["history", "resnet50_train"]) == 2
    assert capsys.readouterr().err.count("\n  'test_r.py::") == 9
    assert main(["history", "resnet50_train", "--format=json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["histories"]) == 9


def test_a_picture_has_a_chart_of_each_series(capsys: pytest.CaptureFixture[str]) -> None:
    """In one document: values, commits, doubts apart, and where a new level starts."""
    for number in range(16):
        slower = {"step_time_min_s": (0.05 if number < 10 else 0.08 + number / 1e6, "s", "lower")}
        flags = ("drifting",) * (number == 3)
        one = measurement(timer="perf_counter", metrics=slower, flags=flags)
        write_run(Path("results"), number, [one], commit=f"{number:040x}"[::-1])
    one = measurement(timer="cuda_events", settings={"measure.profile": "quick"})
    write_run(Path("results"), 16, [one])
    assert main(["history", "mlp", "--metric=step_time_min_s", "--format=svg"]) == 0
    root = ElementTree.fromstring(capsys.readouterr().out)
    words = [element.text or "" for element in root.iter()]
    assert any(text.startswith(f"{MLP}: step_time_min_s: 16 runs, series 1 of 2") for text in words)
    assert any("1 run, series 2 of 2 (differs from series 1 in clock" in text for text in words)
    assert {"a00000000: 80.01 ms", "measured, in doubt: drifting", "new level +60.0%"} <= {*words}
