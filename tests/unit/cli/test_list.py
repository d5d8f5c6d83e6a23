"""The command that lists what there is to measure with."""

from __future__ import annotations

import json

from gpubench_plugin.cli.main import main
from gpubench_plugin.core import catalog


def rows(capsys, *arguments):
    """Rows that it prints as JSON."""
    assert main(["list", "--format=json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)["components"]


def test_everything_has_a_line_and_a_place(capsys):
    """Each workload, precision, parallelism and metric has a meaning and where it works."""
    listing = rows(capsys)
    named = {}
    for row in listing:
        named.setdefault(row["kind"], []).append(row["name"])
    for kind in ("workloads", "precision", "parallelism"):
        assert tuple(named[kind]) == catalog.choices(kind)
    assert {"step_time_s", "samples_per_s", "mfu"} <= set(named["metrics"])
    assert [row for row in listing if not (row["meaning"] and row["where"])] == []


def test_the_table_has_one_line_for_each(capsys):
    """Any kind can be selected by name; each component has an aligned line."""
    assert main(["list", "precision"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert (head, [line.split()[0] for line in lines]) == (
        "precision",
        list(catalog.choices("precision")),
    )
    assert {row["kind"] for row in rows(capsys, "optimizers", "commands")} == {
        "optimizers",
        "commands",
    }


def test_a_terminal_gets_lines_that_fit(capsys, monkeypatch):
    """Each begins with the name and what it is."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["list", "workloads"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 60
    (gpt2,) = (line for line in lines if line.startswith("  gpt2 "))
    assert gpt2.split()[1:3] == ["GPT-2", "language"]
