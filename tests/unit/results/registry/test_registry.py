"""What holds for every registry, on both kinds of database."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpubench_plugin.core.errors import ResultsError, UsageProblem
from gpubench_plugin.environment.fingerprints import fingerprint_of
from gpubench_plugin.results.reader import RunReader
from gpubench_plugin.results.registry import ingest
from gpubench_plugin.results.registry.registry import results_query
from gpubench_plugin.system import json_files, stored

THIRD = "20260103T000000Z_run_abcdef"
"""The beginning of a day, of which no run has this id."""


def ids(runs: Any) -> list[str]:
    """The days of runs, as the test gave them."""
    return [int(run.run_id[6:8]) for run in runs]


def earlier(registry: Any, names: list[str], **options: Any) -> Any:
    usual = {"branch": "main", "since": "", "limit": 99, "fingerprints": {}}
    return registry.earlier(names, **{**usual, **options})


def step_times(runs: Any, benchmark: str) -> list[float]:
    return [run.results[benchmark].metrics["step_time_s"].value for run in runs]


def test_run_comes_back_as_it_was_measured(backend: Any, make_run: Any) -> None:
    """A stored run equals the one its directory tells."""
    failed = make_run.measured("resnet", 1.0, outcome="oom", reason="out of\0memory", metrics={})
    directory = make_run(1, mlp=(0.01, 0.02), odd=0.1, resnet=failed)
    with backend.open() as registry:
        assert registry.ingest(directory)
        stored = registry.run(directory.run_id)
        assert registry.run(directory.run_id[:-1]) is None
    expected = RunReader(directory).run()
    assert stored.path == directory.path
    assert list(stored.results) == list(expected.results)
    assert stored.results[make_run.id("resnet")].reason == "out of\0memory"
    assert stored.results[make_run.id("mlp")].launches == (
        {"step_time_s": 0.01},
        {"step_time_s": 0.02},
    )
    assert stored == expected


def test_the_same_run_twice_changes_nothing(backend: Any, make_run: Any) -> None:
    """Storing again says so, and leaves one run with one row per benchmark."""
    directory = make_run(1, mlp=0.01, resnet=0.5)
    with backend.open() as registry:
        assert registry.ingest(directory)
        assert not registry.ingest(directory)
    with backend.open() as registry:
        assert not registry.ingest(directory)
        assert len(registry.runs()) == 1
        assert len(registry.points(make_run.id("mlp"), "step_time_s")) == 1


def test_run_that_changed_is_replaced_as_a_whole(backend: Any, make_run: Any) -> None:
    """Resumed or judged later, a run has its new benchmarks and verdicts only, and its tags."""
    with backend.open() as registry:
        directory = make_run(1, status="interrupted", mlp=0.01, gone=0.1)
        make_run.tag(directory, "release", "nightly")
        assert registry.ingest(directory)
        make_run.tag(directory, "ignored")
        assert registry.ingest(make_run(1, mlp=0.02, resnet=0.5))
        row = registry.runs()[0]
        assert (row.state, row.tags, row.benchmarks) == ("complete", ("nightly", "release"), 2)
        assert registry.points(make_run.id("gone"), "step_time_s") == []
        (run,) = registry.points(make_run.id("mlp"), "step_time_s")
        assert step_times([run], make_run.id("mlp")) == [0.02]
        make_run.judge(directory, "mlp")
        assert registry.ingest(directory)
        assert registry.runs()[0].regressed


def test_another_run_with_the_same_id_is_refused(backend: Any, make_run: Any) -> None:
    """A run is never replaced by one that began at another time."""
    with backend.open() as registry:
        registry.ingest(make_run(1, run_id="one"))
        with pytest.raises(ResultsError, match="a different run with id one is stored"):
            registry.ingest(make_run(2, run_id="one"))
        assert registry.runs()[0].started.startswith("2026-01-01")


def test_interrupted_run_is_stored_from_its_journal(backend: Any, make_run: Any) -> None:
    """A run that was killed is there with what it measured, and is no sample for others."""
    directory = make_run(1)
    directory.summary.unlink()
    started = {
        "schema_version": 1,
        "event": "run_started",
        "time": "2026-01-01T12:00:00.000000Z",
        "run_id": directory.run_id,
        "command": [],
        "params": {make_run.id("mlp"): {}, make_run.id("never"): {}},
    }
    measured = {
        "schema_version": 1,
        "event": "benchmark",
        "time": "2026-01-01T12:00:05.000000Z",
        **stored.dump(make_run.measured("mlp", 0.01)),
    }
    directory.journal.write_text("".join(f"{json.dumps(e)}\n" for e in (started, measured)))
    configurations = {
        make_run.id(name): {"distributed": {"world_size": 1}} for name in ("mlp", "never")
    }
    json_files.write_json(directory.config_resolved, configurations)
    facts = {"schema_version": 1, "git": {"branch": "main", "dirty": False}}
    json_files.write_json(directory.system, facts)
    with backend.open() as registry:
        assert registry.ingest(directory)
        row = registry.runs()[0]
        assert (row.state, row.benchmarks, row.measured) == ("interrupted", 2, 1)
        assert earlier(registry, [make_run.id("mlp")]) == []
        assert len(registry.points(make_run.id("mlp"), "step_time_s")) == 1


def test_run_that_cannot_be_read_is_refused_and_changes_nothing(
    backend: Any, make_run: Any
) -> None:
    """A broken summary is an error of the results, and what was stored stays."""
    directory = make_run(1)
    with backend.open() as registry:
        registry.ingest(directory)
        directory.summary.write_text("{")
        with pytest.raises(ResultsError, match="summary"):
            registry.ingest(directory)
        assert len(registry.points(make_run.id("mlp"), "step_time_s")) == 1


def test_runs_are_listed_latest_first(backend: Any, make_run: Any) -> None:
    """A list of runs can be limited, and confined to a branch or the beginning of an id."""
    with backend.open() as registry:
        runs = [make_run(day) for day in (2, 1, 3)]
        for run in runs:
            registry.ingest(run)
        registry.ingest(make_run(4, experiment="other", branch="topic"))
        registry.ingest(make_run(5, branch=None, dirty=None))
        assert registry.tag(runs[0].run_id, add=["b", "a"]) == ("a", "b")
        assert ids(registry.runs()) == [5, 4, 3, 2, 1]
        assert ids(registry.runs(limit=2)) == [5, 4]
        assert ids(registry.runs(branch="main", limit=2)) == [3, 2]
        (tagged,) = registry.runs(prefix="20260102")
        assert (tagged.tags, tagged.commit, tagged.measured) == (("a", "b"), "c2", 1)
        assert registry.tag(runs[0].run_id, remove=["b", "x"]) == ("a",)
        with pytest.raises(UsageProblem, match="tag"):
            registry.tag(runs[0].run_id, add=["a b"])
        with pytest.raises(ResultsError, match="no document of unknown"):
            registry.tag("unknown", add=["a"])


def test_forgotten_run_is_gone(backend: Any, make_run: Any) -> None:
    """Nothing of it is left, its directory stays, and it can be stored again."""
    directory = make_run(1)
    make_run.tag(directory, "x")
    with backend.open() as registry:
        registry.ingest(directory)
        registry.forget(directory.run_id)
        registry.forget("unknown")
        assert registry.runs() == []
        assert registry.points(make_run.id("mlp"), "step_time_s") == []
        assert registry.ingest(directory)


@pytest.fixture
def history(backend: Any, make_run: Any) -> Any:
    """A registry with runs that can be compared with, and others that cannot."""
    with backend.open() as registry:
        for day in (3, 1, 2, 9):
            registry.ingest(make_run(day, mlp=day / 100, resnet=day / 10))
        registry.ingest(make_run(4, branch="topic"))
        registry.ingest(make_run(5, dirty=True))
        registry.ingest(make_run(6, status="failed"))
        registry.ingest(make_run(7, regressed=("resnet",), mlp=0.07, resnet=9.0))
        registry.ingest(make_run(8, cpu="slow", mlp=0.08))
        registry.ingest(make_run(10, branch=None, dirty=None, resnet=1.0))
        registry.ingest(make_run(11, mlp=make_run.measured("mlp", 1, outcome="hang", metrics={})))
        yield registry


def test_earlier_gives_only_what_can_be_compared_with(history: Any, make_run: Any) -> None:
    """Complete, clean and not regressed runs of the branch, oldest first."""
    mlp = [make_run.id("mlp")]
    assert ids(earlier(history, mlp)) == [1, 2, 3, 8, 9]
    assert ids(earlier(history, mlp, branch="topic")) == [4]
    assert earlier(history, mlp, branch="none of them") == []
    assert earlier(history, []) == []


def test_earlier_begins_at_a_run(history: Any, make_run: Any) -> None:
    """The window is anchored: the first runs from that one on, itself included."""
    mlp, anchor = [make_run.id("mlp")], "20260102T120000Z_run_000002"
    assert ids(earlier(history, mlp, since=anchor)) == [2, 3, 8, 9]
    assert ids(earlier(history, mlp, since=anchor, limit=2)) == [2, 3]
    # One that is not stored: its id says when it began.
    assert ids(earlier(history, mlp, since=THIRD, limit=1)) == [3]
    assert ids(earlier(history, mlp, since="no time", limit=1)) == [1]


def test_earlier_holds_the_asked_benchmarks_only(history: Any, make_run: Any) -> None:
    """Each benchmark has a window of its own; a run lacks those outside of theirs."""
    mlp, resnet = make_run.id("mlp"), make_run.id("resnet")
    runs = earlier(history, [resnet])
    assert all(list(run.results) == [resnet] for run in runs)
    assert step_times(runs, resnet) == [0.1, 0.2, 0.3, 0.9]
    runs = earlier(history, [mlp, resnet, mlp], since=THIRD, limit=2)
    assert {d: sorted(run.results) for d, run in zip(ids(runs), runs, strict=True)} == {
        3: [mlp, resnet],
        8: [mlp],
        9: [resnet],
    }
    assert runs[0].machine == {"cpu.model": "fast"}
    assert runs[0].results[resnet].settings == {"training.batch_size": 8}


def test_earlier_can_be_confined_to_like_machines(history: Any, make_run: Any) -> None:
    """With a fingerprint, other machines, settings and clocks do not fill a benchmark's window."""
    mlp = make_run.id("mlp")
    facts: Any = ({"cpu.model": "fast"}, {"training.batch_size": 8})
    fingerprint = fingerprint_of(*facts, "perf_counter")
    runs = earlier(history, [mlp], since=THIRD, limit=2, fingerprints={mlp: fingerprint})
    assert ids(runs) == [3, 9]
    runs = earlier(history, [mlp], branch="topic", fingerprints={mlp: fingerprint})
    assert ids(runs) == [4]
    events = {mlp: fingerprint_of(*facts, "cuda_events")}
    assert earlier(history, [mlp], fingerprints=events) == []
    timed = make_run.measured("mlp", 0.5, timer="cuda_events")
    history.ingest(make_run(12, mlp=timed))
    runs = earlier(history, [mlp], fingerprints=events)
    assert ids(runs) == [12]


def test_points_are_the_latest_values_oldest_first(history: Any, make_run: Any) -> None:
    """Of whatever run has the metric, of one branch if given."""
    mlp = make_run.id("mlp")

    def points(*metric: str, **options: Any) -> list[int]:
        return ids(history.points(mlp, *metric, **options))

    assert points("step_time_s") == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert points("step_time_s", limit=2) == [8, 9]
    assert points("step_time_s", branch="topic") == [4]
    assert history.points(mlp, "no such metric") == []
    assert history.points(mlp, 'step"time') == []
    assert history.points("no such benchmark", "step_time_s") == []
    last = history.points(mlp, "step_time_s")[-1]
    result = last.results[mlp]
    assert (last.commit, last.branch, result.timer) == ("c9", "main", "perf_counter")
    step_time = result.metrics["step_time_s"]
    assert (step_time.value, step_time.unit) == (0.09, "s")
    assert last.started == "2026-01-09T12:00:00.000000Z"
    assert (last.machine, result.settings) == ({"cpu.model": "fast"}, {"training.batch_size": 8})
    assert result.metrics["samples_per_s"].unit == "samples/s"


def test_odd_texts_are_stored(backend: Any, make_run: Any) -> None:
    """Node ids of any length, lone surrogates and null characters break neither database."""
    name = "x\0\udc80" + "long" * 2000
    odd = make_run.measured(
        "odd", 0.1, id=name, flags=("a\0",), settings={"a\0": ["b\0", 1.5, None]}
    )
    directory = make_run(1, branch="b" * 5000, odd=odd)
    with backend.open() as registry:
        assert registry.ingest(directory)
        (stored,) = registry.run(directory.run_id).results.values()
        assert stored.settings == {"a\0": ["b\0", 1.5, None]}
        (same,) = RunReader(directory).run().results
        assert len(registry.points(same, "step_time_s", branch="b" * 5000)) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("index", "options"),
    [
        ("branch", {"branch": True}),
        ("started", {"branch": False}),
        ("fingerprint", {"branch": True, "fingerprint": True}),
        ("started", {"metric": "step_time_s", "branch": False}),
        ("branch", {"metric": "step_time_s", "branch": True}),
    ],
)
def test_queries_read_one_index_each(
    backend: Any, make_run: Any, index: str, options: dict[str, Any]
) -> None:
    """However many results there are: neither a scan of the table nor a sort."""
    with backend.open() as registry:
        for day in range(1, 29):
            many = {f"b{n}": 0.01 for n in range(40)}
            registry.ingest(make_run(day, branch=f"topic{day}" if day % 2 else "main", **many))
        parameters = {
            "benchmark": ingest.benchmark_digest(make_run.id("b1")),
            "branch": "main",
            "since": 1,
            "fingerprint": "0" * 24,
            "limit": 3,
        }
        query = results_query(**options)
        known = {k: v for k, v in parameters.items() if k in query.compile().params}
        explain = "EXPLAIN QUERY PLAN" if backend.kind == "sqlite" else "EXPLAIN"
        with registry.database.writing() as connection:
            connection.exec_driver_sql("ANALYZE")
            literal = {"literal_binds": True}
            text = query.params(known).compile(connection.engine, compile_kwargs=literal)
            plan = str(connection.exec_driver_sql(f"{explain} {text}".replace("%", "%%")).all())
    assert f"ix_results_1_{index}" in plan
    assert not any(slow in plan for slow in ("SCAN results", "Seq Scan on results", "TEMP B-TREE"))
