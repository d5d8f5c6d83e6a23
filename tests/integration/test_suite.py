"""The list of what the whole suite must measure, and the check of it."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from gpubench_plugin.core.records import Measurement

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tools" / "generate" / "suite.py"
WANTED = yaml.safe_load((ROOT / "tools" / "generate" / "suite.yaml").read_text(encoding="utf-8"))
NAMES = [name for names in WANTED["measured_in_fp32_and_bf16"].values() for name in names]


@pytest.fixture(scope="module")
def suite():
    """The script that runs and checks the suite."""
    specification = importlib.util.spec_from_file_location("suite", SCRIPT)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def collected(checkout):
    """The ids of all benchmarks as the command of docs/evidence/suite.md collects them."""
    cases = ("--preset=tiny", "--device=cpu", "--precision=fp32,bf16", "--world-size=1,2")
    run = checkout.run("benchmarks", "--collect-only", "-q", *cases, quick=False)
    assert run.code == 0, run.out + run.err
    return [line for line in run.out.splitlines() if "::" in line]


def measured(name, precision):
    own = f"{name}-" if "[" in name else f"{name}["
    return Measurement(
        id=f"benchmarks/x.py::{own}{precision}]",
        name=f"{own}{precision}]",
        params={"precision": precision, "world_size": "1"},
        world_size=1,
        outcome="measured",
    )


@pytest.fixture
def complete():
    """A record of everything on the list."""
    listed = [measured(name, precision) for name in NAMES for precision in ("fp32", "bf16")]
    more = [measured(f"test_{n}", "fp32") for n in range(WANTED["least_measured"])]
    return [*listed, *more]


def test_what_a_run_lacks_is_said(suite, complete):
    """Nothing of a complete one; what was skipped, misses a precision, failed, or took too long."""
    assert suite.missing(complete, WANTED, seconds=1.0) == []
    skipped = [replace(m, outcome="skipped", reason="no time") for m in complete]
    said = suite.missing(skipped, WANTED, seconds=1.0)
    assert len(said) == 2 * len(NAMES) + 1
    assert said[-1].startswith("0 measured; at least")
    kept = [m for m in complete if m.id != measured(NAMES[0], "bf16").id]
    (said,) = suite.missing(kept, WANTED, seconds=1.0)
    assert f"{NAMES[0]} was not measured in bf16" in said
    (said,) = suite.missing(complete, WANTED, seconds=WANTED["most_seconds"] + 1.0)
    assert said == "it took 601 s; at most 600 are allowed"
    failed = replace(complete[-1], outcome="failed", reason="NaN", id="a")
    silent = replace(complete[-1], outcome="skipped", reason="", id="b")
    assert suite.missing([*complete, failed, silent], WANTED, seconds=1.0) == [
        "1 failed",
        "b: skipped without a reason",
    ]


def test_the_list_names_benchmarks_that_exist(collected):
    """Every name on the list is one of the suite's, with or without parameters."""
    ids = [node_id.partition("::")[2].replace("]", "-") for node_id in collected]
    unknown = [
        name
        for name in NAMES
        if not any(i.startswith(f"{name}-" if "[" in name else f"{name}[") for i in ids)
    ]
    assert unknown == []


def test_the_table_has_a_row_for_every_case(collected):
    """The page was written after the last benchmark was added, renamed or removed."""
    page = (ROOT / "docs" / "evidence" / "suite.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE))
    names = (node_id.partition("::")[2] for node_id in collected)
    cases = {re.sub(r"-?(fp32|bf16)?(-?ranks2)?\]$", "]", name).replace("[]", "") for name in names}
    assert cases == rows
