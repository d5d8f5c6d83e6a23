"""What is on record of an interpreter that is no plain one, and what follows from it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpubench_plugin.baselines.resolve import objections
from gpubench_plugin.core.records import Result, Run
from gpubench_plugin.environment import system_facts
from gpubench_plugin.environment.fingerprints import machine_facts, resume_facts
from gpubench_plugin.environment.system_facts import interpreter_facts, is_instrumented

TOLD = """
import json
from gpubench_plugin.environment.system_facts import *
print(json.dumps([interpreter_facts(), is_instrumented(), interpreter_options()]))
"""


def told(*options: str, **environ: str) -> Any:
    """Facts, flag and options of an interpreter that is started so."""
    started = subprocess.run(
        [sys.executable, *options, "-c", TOLD],
        cwd=Path(system_facts.__file__).parents[2],
        env={**os.environ, **environ},
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(started.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "environ", "facts", "flagged", "handed_on"),
    [
        ([], {}, {}, False, []),
        (["-OO"], {}, {"optimize": 2}, True, ["-O", "-O"]),
        (
            ["-X", "dev", "-X", "tracemalloc=3"],
            {},
            {"dev_mode": True, "tracemalloc": True},
            True,
            ["-X", "dev", "-X", "tracemalloc=3"],
        ),
        ([], {"PYTHONMALLOC": "debug"}, {"malloc": "debug"}, True, []),
        ([], {"PYTHONMALLOC": "malloc"}, {"malloc": "malloc"}, False, []),
    ],
)
def test_interpreter_tells_what_is_not_as_usual(
    options: list[str],
    environ: dict[str, str],
    facts: dict[str, Any],
    flagged: bool,
    handed_on: list[str],
) -> None:
    """A plain one tells nothing; ranks that a gang starts are given the same options."""
    assert told(*options, **environ) == [facts, flagged, handed_on]


def test_allocator_that_is_the_usual_one_is_nothing_to_tell() -> None:
    """Under whatever name."""
    for name in ("", "default", "pymalloc"):
        assert interpreter_facts({"PYTHONMALLOC": name}) == {}
    assert is_instrumented({"PYTHONMALLOC": "pymalloc_debug"})


@pytest.mark.parametrize("fact", ["optimize", "dev_mode", "malloc", "tracemalloc"])
def test_facts_make_runs_incomparable(fact: str) -> None:
    """They count for comparisons and for going on with a run; a run without them lacks the keys."""
    plain = {"python": {"version": "3.11.7"}}
    other = {"python": {"version": "3.11.7", fact: 1}}
    for facts_of in (machine_facts, resume_facts):
        assert facts_of(other).keys() - facts_of(plain).keys() == {f"python.{fact}"}


def test_a_run_that_was_stopped_is_not_pinned_unasked() -> None:
    """It says of how many benchmarks; other flags are no objection."""
    good = Result(id="a", outcome="measured", flags=("outliers",))
    bad = replace(good, id="b", flags=("suspended",))
    run = Run(label="r", status="complete", results={"a": good})

    assert objections(run, 0) == []
    assert objections(replace(run, results={"a": good, "b": bad}), 0) == [
        "the process was suspended while measuring (1 benchmark)"
    ]
