"""What ``gpubench report`` writes, read back from its pages."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from gpubench_plugin.cli.main import main
from gpubench_plugin.cli.report.writing import published
from gpubench_plugin.core.format import duration
from gpubench_plugin.core.records import Outcome, RankTimes
from gpubench_plugin.core.verdicts import Verdict
from gpubench_plugin.reports.columns import metric_text, step
from gpubench_plugin.reports.html.page import Command, Page, Section
from gpubench_plugin.reports.verdicts import headline
from gpubench_plugin.results.run_directory import RunDirectory
from tests.support.page_reader import ReadPage
from tests.support.runs_builder import MLP, RESNET, measurement, run_id, write_run, write_verdicts
from tests.unit.cli.ab.conftest import write_run as write_launch
from tests.unit.cli.ab.stage import clear, stage_in

pytestmark = pytest.mark.slow

BOUNDS = {
    "step_time_ci_low_s": (0.0099, "s", "none"),
    "step_time_ci_high_s": (0.0101, "s", "none"),
    "rounds": (40.0, "count", "none"),
}
RESULTS = Path("results")
TRAIN = "benchmarks/test_a.py::test_train"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty project."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GPUBENCH_REGISTRY", raising=False)


def report(*words: str, code: int = 0) -> ReadPage:
    assert main(["report", *words]) == code
    return ReadPage((Path("report.html")).read_text(encoding="utf-8"))


def summary(directory: RunDirectory) -> dict[str, Any]:
    document = json.loads(directory.summary.read_text())
    return {entry["id"]: entry for entry in document["benchmarks"]}


def profiled(**self_s: float) -> dict[str, Any]:
    rows = [{"name": n, "calls": 2.0, "self_s": s, "total_s": s} for n, s in self_s.items()]
    return {"operators": {"time_of": "cpu", "steps": 3, "operators": rows}}


def ranks_on(*hosts: str) -> tuple[RankTimes, ...]:
    names = ("min_s", "p5_s", "median_s", "p95_s", "max_s", "total_s")
    times: dict[str, Any] = {"count": 9, "p99_s": None, **dict.fromkeys(names, 1.0)}
    return tuple(RankTimes(rank=rank, host=host, **times) for rank, host in enumerate(hosts))


def regression(node_id: str, **fields: Any) -> Verdict:
    shown: dict[str, Any] = {
        "metric": "step_time_s",
        "unit": "s",
        "better": "lower",
        "method": "history",
        "base": 0.010,
        "head": 0.0123,
        "effect": 0.23,
        "interval": (0.2, 0.26),
        "limit": "2%",
        "reason": "23% slower",
        "kind": "regressed",
    }
    return Verdict(id=node_id, **{**shown, **fields})


def test_every_figure_of_a_run_is_that_of_its_files() -> None:
    """Value, metrics, history, verdict and configuration, read back from the page."""
    for number in range(4):
        write_run(RESULTS, number, {MLP: 0.010 + number / 1000, RESNET: 0.5})
    one = measurement(
        MLP,
        0.0123,
        metrics=BOUNDS,
        sources={"training.batch_size": "--training.batch_size=64"},
        correctness=profiled(mm=0.009, add=0.001),
    )
    one = replace(one, configuration={"training": {"batch_size": 64, "momentum": 0.9}})
    directory = write_run(RESULTS, 4, [one, measurement(RESNET, 0.5, flags=("contended",))])
    write_verdicts(directory, [regression(MLP)])
    page = report("last")
    recorded = summary(directory)
    row = page.row("mlp_train[amp]")
    assert row["number"] == recorded[MLP]["metrics"]["step_time_s"]["value"]
    assert (row["kind"], row["change"]) == ("regressed", 0.23)
    assert page.row("resnet18_train[fp32]")["doubts"] == ["contended"]
    (cells,) = (line for line in page.tables[""] if line[0].startswith("mlp_train"))
    assert cells[1:4] == ["step_time_s", step(one), "+23.0% [+20.0%, +26.0%]"]
    metrics = {line[0]: line[1] for line in page.detail("mlp_train[amp]", "Metrics")[1:]}
    for name in recorded[MLP]["metrics"]:
        assert metrics[name] == metric_text(one, name)
    keys = page.detail("mlp_train[amp]", "Configuration")
    assert ["training.batch_size", "64", "--training.batch_size=64"] in keys
    assert ["training.momentum", "0.9", "default"] in keys
    history = page.history("mlp_train[amp]")
    for run, value in history.items():
        entry = summary(RunDirectory(path=RESULTS / "default" / run))[MLP]
        assert entry["metrics"]["step_time_min_s"]["value"] == value
    assert len(history) == 5
    operators = page.detail("mlp_train[amp]", "Per step, by own time")
    assert operators[1] == ["mm", "9.000 ms", "90%", "2"]
    assert "23% slower" in page.words
    assert "1 regressed" in page.words


@pytest.mark.parametrize("metric", ["", "step_time_s"])
def test_a_benchmark_of_the_baseline_alone_has_a_row(metric: str) -> None:
    """The gate's verdict on it, without a measurement."""
    directory = write_run(RESULTS, 0, {MLP: 0.010})
    gone = Verdict(id=TRAIN, metric=metric, kind="removed", reason="no longer collected")
    write_verdicts(directory, [regression(MLP), gone])
    page = report()
    assert page.row("test_train")["kind"] == "removed"
    assert "without this benchmark" in page.words
    assert "no longer collected" in page.words


def test_two_runs_are_compared_by_their_figures() -> None:
    """Base and head in the tables of metrics and operators, sorted by the difference."""
    for number, (mm, add) in enumerate([(0.009, 0.001), (0.0091, 0.004)]):
        one = measurement(MLP, mm + add, correctness=profiled(mm=mm, add=add))
        write_run(RESULTS, number, [one])
    page = report("last~1", "last")
    metrics = page.detail("mlp_train[amp]", "Metrics")
    assert ["step_time_s", "10.00 ms", "13.10 ms", "+31.0%"] in metrics
    operators = page.detail("mlp_train[amp]", "Per step, by own time")
    assert [line[0] for line in operators] == ["operator", "add", "mm"]
    assert operators[1][1:4] == ["1.000 ms", "4.000 ms", "3.000 ms"]
    assert page.row("mlp_train[amp]")["change"] == pytest.approx(0.31)
    assert "regressed" in page.words


def test_a_number_is_of_the_metric_of_its_change() -> None:
    """And the table names it; the step time where nothing was judged."""
    one = measurement(MLP, 0.0123, metrics=BOUNDS)
    directory = write_run(RESULTS, 0, [one, measurement(RESNET, 0.5)])
    memory = {"metric": "peak_memory_bytes", "unit": "bytes", "head": 2.0**31}
    write_verdicts(directory, [regression(MLP, **memory)])
    page = report()
    lines = {line[0]: line[1:] for line in page.tables[""]}
    assert lines["mlp_train[amp]"][:3] == [
        "peak_memory_bytes",
        "2.000 GiB",
        "+23.0% [+20.0%, +26.0%]",
    ]
    assert lines["resnet18_train[fp32]"][0] == "step_time_s"
    shown = [row["history"]["metric"] for row in page.data["rows"]]
    assert shown == ["peak_memory_bytes", "step_time_s"]


def test_a_minimum_over_fewer_rounds_has_its_own_name_history_and_band() -> None:
    """Which the verdict calls the minimum."""
    fewer = {"step_time_min_of_16_s": (0.0125, "s", "lower")}
    one = measurement(MLP, 0.0123, metrics=fewer)
    directory = write_run(RESULTS, 0, [one, measurement(RESNET, 0.5)])
    judged = {"metric": "step_time_min_s", "head": 0.0125}
    write_verdicts(directory, [regression(MLP, **judged), regression(RESNET, **judged)])
    page = report()
    lines = {line[0]: line[1:3] for line in page.tables[""]}
    assert lines["mlp_train[amp]"] == ["step_time_min_of_16_s", "12.50 ms"]
    assert lines["resnet18_train[fp32]"] == ["step_time_min_s", "12.50 ms"]
    first, second = (page.row(name)["history"] for name in ("mlp_train[amp]", "[fp32]"))
    assert (first["metric"], second["metric"]) == ("step_time_min_of_16_s", "step_time_min_s")
    assert first["band"] == second["band"] is not None


def test_a_cause_is_told_once_above_the_table() -> None:
    """By the verdict where there is one, else as a failure."""
    failed = [replace(measurement(i, outcome="failed"), reason="no file") for i in (MLP, RESNET)]
    directory = write_run(RESULTS, 0, failed)
    broken = {
        "kind": "errored",
        "metric": "",
        "limit": "",
        "base": None,
        "head": None,
        "effect": None,
    }
    write_verdicts(directory, [regression(MLP, **broken, interval=None, reason="failed: no file")])
    above = report().words.partition(" Benchmarks ")[0]
    assert "Failures resnet18_train[fp32]: no file" in above
    assert above.count("no file") == 3  # and in the lead, and as the reason of the verdict


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("benchmarks -k mlp", ""),
        ("./benchmarks/training --precision fp32,amp -m 'not slow' -x", "--precision fp32,amp -x"),
        (". --report r.html --gate --baseline=main", "--baseline=main"),
        ("benchmarks/ ../other/ -xk mlp -n 2", "-n 2"),
        ("benchmarks/training/ --world-size=1,2 -q", "-q --world-size=1"),
        ("--ignore benchmarks --size 7b /home/al/project", "--ignore benchmarks --size 7b"),
        ("/home/al/benchmarks -kmlp --resume=2026", ""),
        (
            "benchmarks/training/test_resnet18.py --training.batch_size 64",
            "--training.batch_size 64",
        ),
        ("--tag benchmarks -x --gate-missing=fail -o a=3", "--tag benchmarks -x -o a=3"),
        (f"{MLP} {RESNET} --launches=3", "--launches=3"),
    ],
)
def test_the_command_that_repeats_a_benchmark_is_of_it_alone(command: str, options: str) -> None:
    """With the options that decide how it is measured, and their values."""
    write_run(RESULTS, 0, {MLP: 0.010, RESNET: 0.5}, command=shlex.split(command))
    assert f"pytest '{MLP}' {options}".strip() in report().texts


def test_a_comparison_shows_its_pairs_and_looks(tmp_path: Path) -> None:
    """Each launch is a point of the chart, and each number that of verdicts.json."""
    comparison = tmp_path / "results" / "ab" / "20260101T000000Z_ab_000001"
    comparison.mkdir(parents=True)
    stage = stage_in(comparison, write_launch)
    from gpubench_plugin.cli.ab.comparison import write_files

    command = ("gpubench", "ab", "--base=main", "--", "-k", "slow", "-x")
    runner = stage.runner(stage.fake(clear), command=command)
    write_files(stage.folder, runner.run().comparison("12 launches"))
    page = report(str(stage.folder))
    verdicts = json.loads((stage.folder / "verdicts.json").read_text())["benchmarks"]
    worst = next(v for v in verdicts if v["id"] == "t::slow")
    assert page.row("t::slow")["number"] == worst["head"]
    assert page.row("t::slow")["change"] == worst["effect"]
    pairs = [chart for chart in page.charts if chart["noun"] == "pair"]
    values = {s["label"]: [v for v in s["values"] if v is not None] for s in pairs[0]["series"]}
    assert len(values["head"]) == len(values["base"]) >= 5
    assert page.detail("t::slow", "Looks, recomputed from the recorded launches")
    assert "gpubench ab --base=main -- t::slow -x" in page.texts


def test_a_public_page_tells_no_host_path_or_command(capsys: pytest.CaptureFixture[str]) -> None:
    """Nor facts that comparisons do not need; what is compared by stays."""
    ranks = ranks_on("node-17.lab", "secret-host")
    failed = measurement(RESNET, outcome="failed")
    failed = replace(failed, reason="no file /home/alice/models/net.pt on secret-host")
    one = measurement(MLP, host="secret-host", ranks=ranks, sources={"a.b": "--config=/home/al/x"})
    facts = {"hostname": "secret-host", "memory_bytes": 77_777_777_777}
    write_run(RESULTS, 0, [replace(one, configuration={"a": {"b": 1}}), failed], facts=facts)
    hidden = ("secret-host", "node-17", "alice", "/home", "-k mlp", "77777777777")
    private = report("last").words + str(report("last").charts)
    assert [word for word in hidden if word not in private] == []
    page = report("last", "--public")
    content = Path("report.html").read_text().partition("<script>")[0]
    assert [word for word in hidden if word in page.words or word in content] == []
    assert [word for word in hidden if word in json.dumps(page.data)] == []
    assert "A processor" in page.words
    assert "net.pt" in page.words


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("/home/al/a:/home/al/b", "…/a:…/b"),
        ("file:///home/al/a", "file://…/a"),
        ("../al/secret/a ./al/b", "…/a …/b"),
        ("-I/home/al/a ~al/b", "-I…/a …/b"),
        ("/home/al/", "…"),
        ("/data/a,b/x=1/run%20", "…/run%20"),
        (r"C:\Users\al\a C:/Users/al/b C:\Users\al", "…/a …/b …"),
        (r"\\srv\al\a", "…/a"),
        ("node-17 NODE-17.Lab", "host-2 host-2"),
        ("https://example.org/a/b 5 MB/s 1/2/3", "https://example.org/a/b 5 MB/s 1/2/3"),
    ],
)
def test_names_of_folders_users_and_hosts_are_left_out(text: str, left: str) -> None:
    """In whichever way they are spelt; addresses and fractions stay."""
    failed = replace(
        measurement(MLP, outcome="failed", host="node-17.lab"), reason=f"at {text} end"
    )
    write_run(RESULTS, 0, [failed])
    assert f"at {left} end" in report("--public").text


def test_a_public_page_has_no_commands() -> None:
    """Neither the one that repeats a benchmark nor those that help."""
    texts = ("measure both sides alternately:", Command("gpubench ab"))
    sections = tuple(Section(title=title, texts=texts) for title in ("What helps", "Repeat"))
    page = Page(title="a", subject="b", sections=(*sections, Section(title="c", texts=("d",))))
    assert [section.title for section in published(page, ()).sections] == ["c"]


def test_a_folder_that_names_a_run_is_left_out() -> None:
    """Also a relative one; the name of the run stays."""
    folder = write_run(Path("alice"), 0, {MLP: 0.010}).path.relative_to(Path.cwd())
    page = report(str(folder), str(folder), "--public")
    assert folder.name in page.words
    assert "alice" not in page.words


def test_a_host_may_have_the_name_of_a_role() -> None:
    """It is left out of texts, not of what the script draws by."""
    write_run(RESULTS, 0, [measurement(MLP, host="head", ranks=ranks_on("head", "other"))])
    pages = [report(*words) for words in ([], ["--public"])]
    roles = [[s["role"] for c in page.charts for s in c["series"]] for page in pages]
    assert roles[0] == roles[1]
    assert "head" in roles[0]
    assert pages[1].charts[0]["names"] == ["0 (host-1)", "1 (host-3)"]


def test_a_page_goes_to_what_a_link_leads_to() -> None:
    """The link stays."""
    write_run(RESULTS, 0, {MLP: 0.010})
    Path("published").mkdir()
    Path("report.html").symlink_to("published/today.html")
    report()
    assert Path("report.html").is_symlink()
    assert Path("published/today.html").is_file()


def test_details_are_those_of_the_worst_and_of_the_named() -> None:
    """What is left out is said, and --detail brings it."""
    names = [f"benchmarks/test_a.py::test_{number:02}" for number in range(60)]
    write_run(RESULTS, 0, dict.fromkeys(names, 0.010))
    page = report()
    assert "details of 10 of 60" in page.words
    assert Path("report.html").read_text().count("<template data-row") == 50
    report("--detail=test_59", "--detail=test_58")
    assert Path("report.html").read_text().count("<template data-row") == 52


def test_a_site_makes_only_what_has_changed(capsys: pytest.CaptureFixture[str]) -> None:
    """Runs that are gone lose their page; the index leads to all others."""
    for number in range(3):
        write_run(RESULTS, number, {MLP: 0.010 + number / 1000})
    assert main(["report", "--site=out"]) == 0
    assert "3 pages, 3 written anew" in capsys.readouterr().out
    directory = write_run(RESULTS, 3, {MLP: 0.013, RESNET: 1.0})
    write_verdicts(directory, [regression(MLP)])
    assert main(["report", "--site=out"]) == 0
    assert "4 pages, 1 written anew" in capsys.readouterr().out
    index = ReadPage((Path("out/index.html")).read_text(encoding="utf-8"))
    assert sorted(index.links[-4:]) == sorted(f"runs/{p.name}" for p in Path("out/runs").iterdir())
    for link in index.links:
        assert (Path("out") / link).is_file() or link.startswith("#")
    assert [*index.history("mlp_train[amp]").values()] == [0.010, 0.011, 0.012, 0.013]
    (cells,) = (line for line in matrix(index) if line[0].startswith("mlp"))
    assert cells[1:] == ["13.0 ms", "12.0 ms", "11.0 ms", "10.0 ms"]
    assert (
        ReadPage((next(Path("out/runs").iterdir())).read_text(encoding="utf-8")).links[1]
        == "../index.html"
    )
    for file in directory.path.iterdir():
        file.unlink()
    directory.path.rmdir()
    capsys.readouterr()
    assert main(["report", "--site=out", "--registry=none"]) == 0
    assert "3 pages, 0 written anew, 1 removed" in capsys.readouterr().out
    assert len([*Path("out/runs").iterdir()]) == 3
    assert main(["report", "--site=out", "--registry=none", "--last=1", "--format=json"]) == 0
    kept, *gone = sorted((run_id(number) for number in range(3)), reverse=True)
    told = json.loads(capsys.readouterr().out)
    assert told["removed"] == [f"runs/{name}.html" for name in sorted(gone)]
    assert told["pages"] == [f"runs/{kept}.html"]


def matrix(index: ReadPage) -> list[list[str]]:
    """The table of benchmarks by runs; the second line leads to the runs."""
    (table,) = (
        lines for lines in index.tables.values() if [line[:1] for line in lines][1:2] == [["run"]]
    )
    return table


def test_every_figure_of_the_index_is_that_of_its_runs() -> None:
    """Of each benchmark the latest measurement and verdicts; of each run all outcomes."""
    failed = replace(measurement(RESNET, outcome="failed"), reason="no model <b>")
    runs = [
        write_run(RESULTS, 0, {MLP: 0.010, RESNET: 0.5, TRAIN: 0.2}),
        write_run(RESULTS, 1, [measurement(MLP, 0.011), measurement(RESNET, outcome="skipped")]),
        write_run(RESULTS, 2, [measurement(MLP, 0.0123), measurement(TRAIN, 0.21), failed]),
        write_run(RESULTS, 3, [measurement(TRAIN, 0.3, flags=("contended",))], branch="other"),
    ]
    shown = regression(TRAIN, kind="unchanged", effect=0.05, head=0.21)
    errored = Verdict(id=RESNET, kind="errored", reason="failed")
    write_verdicts(runs[1], [regression(MLP, kind="improved", effect=-0.2)])
    write_verdicts(runs[2], [shown, errored, regression(MLP)])
    assert main(["report", "--site=out"]) == 0
    index = ReadPage((Path("out/index.html")).read_text(encoding="utf-8"))
    latest: dict[str, tuple[Any, Any]] = {}
    for run in runs:
        file = run.verdicts
        judged = json.loads(file.read_text())["benchmarks"] if file.is_file() else ()
        verdict_of = {verdict["id"]: verdict for verdict in judged}
        latest |= {name: (own, verdict_of.get(name, {})) for name, own in summary(run).items()}
    assert [row["id"] for row in index.data["rows"]] == [MLP, RESNET, TRAIN]  # the worst first
    for name, (own, verdict) in latest.items():
        row = index.row(name)
        value = own["metrics"].get("step_time_s", {}).get("value")
        assert (row["outcome"], row["number"]) == (own["outcome"], value)
        assert (row["kind"], row["change"]) == (verdict.get("verdict", ""), verdict.get("effect"))
        assert row["doubts"] == own["flags"]
        facets = dict(zip(index.data["facets"], row["facets"], strict=True))
        assert (facets["precision"], facets["ranks"]) == ("amp", "1")
        for run_name, point in (index.history(name) if row["history"] else {}).items():
            entry = summary(RunDirectory(path=RESULTS / "default" / run_name))[name]
            assert entry["metrics"]["step_time_min_s"]["value"] == point
    assert "no model <b>" in index.words
    head, links, *lines = matrix(index)
    assert head[1:] == [f"01-01 0{number}:00:00" for number in (3, 2, 1, 0)]
    assert links[1:] == [run.run_id[-6:] for run in reversed(runs)]
    pages = [f"runs/{run.run_id}.html" for run in reversed(runs)]
    assert [link for link in index.links if link.startswith("runs/")] == pages * 2
    for name, cells in zip([MLP, RESNET, TRAIN], lines, strict=True):
        for run, cell in zip(reversed(runs), cells[1:], strict=True):
            own = summary(run).get(name)
            if own is None or own["outcome"] != "measured":
                assert cell == (own["outcome"] if own else "")
                continue
            value = duration(own["metrics"]["step_time_s"]["value"], 3)  # without an interval
            assert cell == (value if run != runs[3] else f"(≈ {value})")
    listed = {line[0]: line[1:] for line in index.cells if "_run_" in line[0]}
    for number, run in enumerate(runs):
        outcomes = [own["outcome"] for own in summary(run).values()]
        counts = {1: "1 improved", 2: "1 regressed · 1 errored · 1 unchanged"}.get(number, "")
        branch = "main" if number < 3 else "other"
        assert listed[run.run_id] == [
            f"2026-01-01 0{number}:00:00",
            f"{number:040x}"[:9] + f" {branch}",
            f"{outcomes.count('measured')} of {len(outcomes)} measured",
            counts,
        ]


def test_the_index_lists_comparisons_by_their_verdicts() -> None:
    """With both sides; one that has none yet is said to have none."""
    write_run(RESULTS, 0, {MLP: 0.010})
    comparison = Path("results/ab/20260101T000000Z_ab_000001")
    Path("sides").mkdir()
    stage = stage_in(Path("sides").resolve(), write_launch)
    from gpubench_plugin.cli.ab.comparison import write_files
    from gpubench_plugin.cli.ab.request import Request

    state = stage.state()
    state.request = Request(here=stage.folder, base="main", command=("gpubench", "ab"))
    state.write()
    judged = stage.runner(stage.fake(clear), state).run().comparison("12 launches")
    for is_judged, of in [(False, "not judged"), (True, f"{judged.head} against {judged.base}")]:
        if is_judged:
            write_files(stage.folder, judged)
        copytree(stage.folder, comparison, dirs_exist_ok=True)
        assert main(["report", "--site=out"]) == 0
        index = ReadPage((Path("out/index.html")).read_text(encoding="utf-8"))
        (line,) = (line for line in index.cells if line[0] == comparison.name)
        counts = headline(judged.verdicts) if is_judged else ""
        assert line[1:] == ["2026-01-01 00:00:00", of, "", counts]
        assert f"comparisons/{comparison.name}.html" in index.links
    (comparison / "verdicts.json").write_text("{")
    assert main(["report", "--site=out"]) == 0
    index = ReadPage((Path("out/index.html")).read_text(encoding="utf-8"))
    assert f"pages that could not be made: comparisons/{comparison.name}.html" in index.words
    assert f"comparisons/{comparison.name}.html" not in index.links


def test_a_public_index_tells_no_host() -> None:
    """Neither in reasons nor as a facet, also of runs before the latest."""
    failed = replace(
        measurement(RESNET, outcome="crashed"), reason="node-17 is gone from /home/al/x"
    )
    write_run(RESULTS, 0, [failed], facts={"hostname": "node-17"})
    write_run(RESULTS, 1, [measurement(MLP, host="node-18")])
    for words, is_told in [([], True), (["--public"], False)]:
        assert main(["report", "--site=out", *words]) == 0
        text = Path("out/index.html").read_text(encoding="utf-8")
        assert [word in text for word in ("node-17", "node-18", "/home")] == [is_told] * 3
        for page in Path("out/runs").iterdir():
            assert "../index.html" in ReadPage(page.read_text(encoding="utf-8")).links
            assert f"runs/{page.name}" in ReadPage(text).links


@pytest.mark.parametrize("part", ["runs", "comparisons"])
def test_a_site_does_not_write_elsewhere(part: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A symlink in place of a folder is refused."""
    write_run(RESULTS, 0, {MLP: 0.010})
    assert main(["report", "--site=out"]) == 0
    (Path("out") / part).rename("moved")
    (Path("out") / part).symlink_to(Path("moved").resolve())
    before = sorted(Path("moved").iterdir())
    capsys.readouterr()
    assert main(["report", "--site=out", "--last=1"]) == 2
    assert f"--site=out: {part} is a symlink" in capsys.readouterr().err
    assert sorted(Path("moved").iterdir()) == before


def test_a_site_removes_no_file_but_its_pages() -> None:
    """Whatever its manifest says; folders that are gone are made again."""
    write_run(RESULTS, 0, {MLP: 0.010})
    others = [Path("precious.html"), Path("out/precious.html"), Path("out/runs/old.html")]
    Path("out/runs").mkdir(parents=True)
    for file in others:
        file.write_text("mine")
    pages = dict.fromkeys(["runs/../../precious.html", "precious.html", "runs/old.html"], "")
    Path("out/site.json").write_text(json.dumps({"schema_version": 1, "pages": pages}))
    assert main(["report", "--site=out"]) == 0
    assert [file.exists() for file in others] == [True, True, False]
    assert Path("out/comparisons").is_dir()


def test_a_site_says_which_runs_cannot_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    """The others have their pages."""
    write_run(RESULTS, 0, {MLP: 0.010})
    write_run(RESULTS, 1, {MLP: 0.010}).summary.write_text("{")
    assert main(["report", "--site=out"]) == 0
    assert "summary.json is not JSON" in capsys.readouterr().err
    assert len([*Path("out/runs").iterdir()]) == 1
    index = ReadPage((Path("out/index.html")).read_text(encoding="utf-8"))
    assert f"{run_id(1)}/summary.json is not JSON" in index.words


@pytest.mark.parametrize("outcome", ["measured", "failed"])
def test_a_page_of_an_old_run_has_no_later_ones(outcome: Outcome) -> None:
    """So that pages of a site stay as they are; nor where the benchmark failed in that run."""
    runs = [measurement(MLP, 0.010, outcome=o) for o in ("measured", outcome, "measured")]
    ids = [write_run(RESULTS, number, [run]).run_id for number, run in enumerate(runs)]
    assert [*report(ids[1]).history("mlp_train[amp]")] == ids[: 2 if outcome == "measured" else 1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["last", "-o", "."], "--output=.: not writable"),
        (["last", "-o", "missing/report.html"], "not writable"),
        (["last", "-o", "pipe"], "--output=pipe: not writable"),
        (["last", "--detail=nothing"], "nothing"),
        (["a", "b", "c"], "c: one too many"),
        (["--site=taken"], "--site=taken: holds something else"),
        (["--site=file"], "--site=file"),
        (["last", "--site=out"], "--site=out: has all runs"),
        (["2031"], "no run"),
    ],
)
def test_mistakes_are_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    """Each names what is allowed, and writes nothing."""
    write_run(RESULTS, 0)
    Path("taken").mkdir()
    Path("taken/precious.txt").write_text("mine")
    Path("file").write_text("mine")
    os.mkfifo("pipe")
    assert main(["report", *words]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err
    assert len(err.splitlines()) == 1
    assert not Path("report.html").exists()


def test_a_run_that_was_killed_has_a_report() -> None:
    """Of what its journal has."""
    write_run(RESULTS, 0, {MLP: 0.010}, status=None)
    assert report().row("mlp_train[amp]")["number"] == 0.010


def test_a_file_of_pytest_benchmark_can_be_a_side() -> None:
    """It has fewer facts."""
    document = {
        "machine_info": {"cpu": {}},
        "commit_info": {},
        "datetime": "2026-01-01T00:00:00",
        "version": "5.3.1",
        "benchmarks": [
            {"name": "test_a", "fullname": TRAIN, "group": None, "params": None, "param": None}
            | {"extra_info": {}, "options": {}, "stats": {"min": 0.01, "max": 0.02, "mean": 0.011}}
        ],
    }
    stats: Any = document["benchmarks"][0]["stats"]  # type: ignore[index] # a list of mappings
    stats |= {
        "median": 0.011,
        "stddev": 0.0,
        "rounds": 50,
        "iterations": 1,
        "iqr": 0.0,
        "q1": 0.011,
    }
    stats |= {
        "q3": 0.011,
        "iqr_outliers": 0,
        "stddev_outliers": 0,
        "outliers": "0;0",
        "ld15iqr": 0.01,
    }
    stats |= {"hd15iqr": 0.02, "ops": 90.0, "total": 0.55}
    for name in ("a.json", "b.json"):
        Path(name).write_text(json.dumps(document))
    assert report("a.json", "b.json").row("test_train")["outcome"] == "measured"
