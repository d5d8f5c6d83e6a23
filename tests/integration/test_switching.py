"""Tests written for pytest-benchmark with ``gpubench`` in place of ``benchmark``.

Each form of use is measured, or refused in one line with the user's line below it.
"""

from __future__ import annotations

import json
import re
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.session.api import load_run
from tests.support.projects import InlineProject

if TYPE_CHECKING:
    from tests.support.projects import Project, Run

MODULE = """
import asyncio
import functools
import pytest

def total(n=100):
    return sum(range(n))

def empty(values):
    return values.pop()

class Store:
    def __init__(self):
        self.rows = []

    def insert(self, row):
        self.rows.append(row)

@pytest.fixture
def store():
    return Store()
"""

MEASURED = {
    "argument": "gpubench(total, 10)",
    "arguments": "gpubench(divmod, 7, 2)\nassert gpubench.result == (3, 1)",
    "builtin": "gpubench(sorted, [3, 1, 2])",
    "lambda": "gpubench(lambda: total(10))",
    "partial": "gpubench(functools.partial(total, n=10))",
    "method": "gpubench(store.insert, 'a row')",
    "bound_in_class": "gpubench(Store().insert, ('a', 'row'))",
    "constructor": "gpubench(dict, [('a', 1)])",
    "generator": "gpubench(lambda: list(total(n) for n in range(3)))",
    "coroutine": "async def work(): return 1\ngpubench(lambda: asyncio.run(work()))",
    "decorator": "@gpubench\ndef work():\n    total()",
    "result": "gpubench(total, 4)\nassert gpubench.result == 6",
    "extra_info": "gpubench.extra_info['size'] = 10\ngpubench(total, 10)",
    "extra_info_later": "gpubench(total)\ngpubench.extra_info['result'] = gpubench.result",
    "extra_info_update": "gpubench.extra_info.update(sizes=(1, 2), how=total)\ngpubench(total)",
    "extra_info_whole": "gpubench.extra_info = {'whole': True}\ngpubench(total)",
    "group": "gpubench.group = 'sums'\ngpubench(total)",
    "group_later": "gpubench(total)\ngpubench.group = 'sums'",
    "stats_before": "assert gpubench.stats is None\ngpubench(total)",
    "stats_mean": "gpubench(total)\nassert 0 < gpubench.stats.stats.mean < 60",
    "stats_item": "gpubench(total)\nassert gpubench.stats['min'] <= gpubench.stats['max']",
    "stats_many": (
        "gpubench(total)\nnames = ('median', 'stddev', 'iqr', 'rounds', 'ops', 'outliers', 'q1')\n"
        "assert all(gpubench.stats.get(name) is not None for name in names)"
    ),
    "enabled": "if gpubench.enabled and not gpubench.disabled:\n    gpubench(total)",
    "named": "gpubench(total)\nassert gpubench.fullname.endswith(gpubench.name)",
    "guarded": "getattr(gpubench, 'weave', print)()\ngpubench(total)",
    "pedantic": "gpubench.pedantic(total, args=(10,), rounds=5, iterations=3, warmup_rounds=2)",
    "pedantic_keywords": "gpubench.pedantic(total, kwargs={'n': 10}, rounds=2)",
    "pedantic_once": "rows = [1]\ngpubench.pedantic(rows.pop)\nassert rows == []",
    "pedantic_setup": (
        "made = []\ndef setup():\n    made.append(1)\n    return (list(made),), {}\n"
        "gpubench.pedantic(empty, setup=setup, rounds=3, warmup_rounds=1)\n"
        "assert len(made) == 4 and gpubench.stats.stats.rounds == 3"
    ),
    "pedantic_teardown": (
        "seen = []\ngpubench.pedantic(total, (3,), setup=list, teardown=seen.append, rounds=2)\n"
        "assert seen == [3, 3]"
    ),
    "pedantic_iterator": (
        "seen, args = [], iter([3])\n"
        "gpubench.pedantic(total, args, setup=list, teardown=seen.append, rounds=2)\n"
        "assert seen == [3, 3]"
    ),
    "pedantic_teardown_of_a_partial": (
        "seen, step = [], functools.partial(total, 3)\n"
        "gpubench.pedantic(step, setup=list, teardown=lambda *own: seen.append(own), rounds=2)\n"
        "assert seen == [(), ()]"
    ),
}
"""Forms of use by name, with the body of the test."""

RESULT = "gpubench(…) returns the measurement; what the step returned is gpubench.result"
REFUSED = {
    "keyword": ("gpubench(total, n=10)", "gpubench: unknown keyword 'n'"),
    "keyword_near": ("gpubench(total, sample=10)", "(did you mean 'samples'?)"),
    "result_compared": ("assert gpubench(total) == 4950", RESULT),
    "weave": ("gpubench.weave(total)", "gpubench.weave: no such attribute; allowed"),
    "misspelt": ("gpubench.extrainfo['a'] = 1", "(did you mean 'extra_info'?)"),
    "own_private": ("gpubench._min_rounds", "_min_rounds: no such attribute; allowed: compare"),
    "set": ("gpubench.groups = 'g'", "gpubench.groups = …: it cannot be set (did you mean 'group'"),
    "private": ("gpubench._min_rounds = 3", "gpubench._min_rounds = …: it cannot be set"),
    "twice": ("gpubench(total)\ngpubench(total)", "gpubench was called twice"),
    "no_rounds": ("gpubench.pedantic(total, rounds=0)", "rounds=0; allowed: an int from 1"),
    "setup_and_iterations": (
        "gpubench.pedantic(total, setup=list, iterations=2)",
        "gpubench.pedantic: iterations=2; allowed: 1 beside a setup",
    ),
    "setup_and_args": (
        "gpubench.pedantic(total, (3,), setup=lambda: ((3,), {}))",
        "gpubench.pedantic: args or kwargs beside a setup that returns some",
    ),
    "setup_returns": (
        "gpubench.pedantic(total, setup=lambda: 3)",
        "gpubench.pedantic: setup returned 3; allowed: None, or (args, kwargs)",
    ),
    "result_of_a_call": ("gpubench(total(10), 3)", "45 is not callable; pass the step"),
    "missing_argument": ("gpubench(empty)", "it needs 'values'"),
    "future": ("async def work(): ...\ngpubench(work)", "a call of the step returned a coroutine"),
}
"""What is refused, with the body of the test, and words of the line."""

OTHERS = """
@pytest.mark.benchmark(group="marked", min_rounds=3, warmup=True)
def test_mark(gpubench):
    gpubench(total)

@pytest.mark.benchmark(group="marked", min_rounds=3, warmup=True)
class TestMarked:
    @pytest.mark.parametrize("n", [1, 2])
    def test_sizes(self, gpubench, n):
        gpubench.extra_info["n"] = n
        gpubench(total, n)
"""


def suite() -> str:
    """The text of a module with a test for each form."""
    bodies = {**MEASURED, **{name: body for name, (body, _) in REFUSED.items()}}
    functions = (
        f"def test_{name}(gpubench, store):\n    " + body.replace("\n", "\n    ")
        for name, body in bodies.items()
    )
    return "\n\n".join((MODULE, *functions, OTHERS))


@pytest.fixture(scope="module")
def switched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Run]:
    """The suite and its session."""
    project = InlineProject(tmp_path_factory.mktemp("switched"))
    project.write("test_it.py", suite())
    return project, project.run("--benchmark-json=theirs.json", "-p", "no:randomly")


def saved(project: Project) -> dict[str, Any]:
    """Benchmarks of pytest-benchmark's file by the name of the test."""
    benchmarks = json.loads((project.path / "theirs.json").read_text())["benchmarks"]
    return {b["name"].partition("[")[0].removeprefix("test_"): b for b in benchmarks}


@pytest.mark.parametrize("name", MEASURED)
def test_what_pytest_benchmark_measures_is_measured(
    switched: tuple[Project, Run], name: str
) -> None:
    """In the form in which suites of others have it."""
    project, run = switched
    outcomes = {n.partition("[")[0]: outcome for n, outcome in run.outcomes.items()}
    assert outcomes[f"test_{name}"] == "measured", run.out
    assert name in saved(project)


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_counterpart_is_said_in_one_line(
    switched: tuple[Project, Run], name: str
) -> None:
    """Above the place and the line of the test, without a frame of gpubench's."""
    _, run = switched
    section = re.search(rf"\n_+ test_{name}\b.*? _+\n(.*?)\n[_=]{{3}}", run.out, re.DOTALL)
    assert section is not None
    assert REFUSED[name][1] in section[1]
    if name != "result_compared":  # pytest shows an assertion with the test around it
        assert len([line for line in section[1].splitlines() if line.strip()]) == 3, section[1]


def test_notes_and_groups_stand_in_all_files(switched: tuple[Project, Run]) -> None:
    """In pytest-benchmark's, in the summary and in the journal, whenever the test set them."""
    project, run = switched
    theirs = saved(project)
    assert theirs["extra_info"]["extra_info"] == {"size": 10}
    assert theirs["extra_info_later"]["extra_info"] == {"result": 4950}
    assert theirs["extra_info_whole"]["extra_info"] == {"whole": True}
    assert theirs["extra_info_update"]["extra_info"]["how"].startswith("<function total")
    groups = {name: theirs[name]["group"] for name in ("group", "group_later", "mark", "argument")}
    assert groups == {"group": "sums", "group_later": "sums", "mark": "marked", "argument": None}
    loaded = load_run(run.directory)
    journal = [line for line in run.journal if line["event"] == "benchmark"]
    for records in (run.summary["benchmarks"], journal, map(vars, loaded.benchmarks)):
        by_name = {r["name"].partition("[")[0].removeprefix("test_"): r for r in records}
        assert by_name["extra_info_later"]["extra_info"] == {"result": 4950}
        assert by_name["extra_info_update"]["extra_info"]["sizes"] == [1, 2]
        assert by_name["extra_info_update"]["extra_info"]["how"].startswith("<function total")
        assert by_name["group_later"]["group"] == "sums"
    ours = json.loads((run.directory / "benchmark.json").read_text())["benchmarks"]
    assert [b["extra_info"] for b in ours if "sizes" in b["name"]] == [{"n": 1}, {"n": 2}]


def test_a_group_is_a_title_of_the_table(switched: tuple[Project, Run]) -> None:
    """Its benchmarks stand below it, those of a mark and of a class, too."""
    table = switched[1].out.partition("= gpubench =")[2].splitlines()
    at = table.index("marked")
    names = {line.split()[0] for line in table[at + 1 : at + 4]}
    assert names == {"mark", "TestMarked::sizes[1]", "TestMarked::sizes[2]"}


def test_other_keys_of_the_mark_are_told_once(switched: tuple[Project, Run]) -> None:
    """Not for every test."""
    said = "of the mark benchmark gpubench takes the group, not min_rounds, warmup; see --measure"
    assert switched[1].out.count(said) == 1


def test_pedantic_makes_the_calls_it_states_and_no_other(switched: tuple[Project, Run]) -> None:
    """Its rounds are those of the record, whose settings tell them from others."""
    project, run = switched
    pedantic = saved(project)["pedantic"]["stats"]
    assert (pedantic["rounds"], pedantic["iterations"], len(pedantic["data"])) == (5, 3, 5)
    settings = {b["name"].partition("[")[0]: b["settings"] for b in run.summary["benchmarks"]}
    assert settings["test_pedantic"]["measure.steps"] == 15
    assert settings["test_pedantic"]["measure.warmup_iterations"] == 6


def test_notes_of_rank_zero_count(project: Project) -> None:
    """Of several ranks, in processes of their own; and they stay where the run is resumed."""
    body = """
        import pytest

        @pytest.mark.gpubench(ranks="any")
        @pytest.mark.benchmark(group="ranks")
        def test_ranks(gpubench, process_group):
            gpubench.extra_info["rank"] = process_group.world.rank
            gpubench(sum, [1, 2])
    """
    project.write("test_it.py", dedent(body))
    run = project.run("--world-size=2", "--benchmark-json=theirs.json")
    (ours,), theirs = run.summary["benchmarks"], saved(project)["ranks"]
    for record in (ours, theirs):
        assert (record["group"], record["extra_info"]) == ("ranks", {"rank": 0}), run.out
    project.run("--world-size=2", "--benchmark-json=theirs.json", f"--resume={run.directory.name}")
    assert (saved(project)["ranks"]["group"], len(run.directories)) == ("ranks", 1)
    assert run.summary["benchmarks"][0]["extra_info"] == {"rank": 0}
