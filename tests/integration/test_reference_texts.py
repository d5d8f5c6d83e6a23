"""The texts that the site generates from the code; ``tox -e docs`` builds its pages."""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

import gpubench_plugin
from docs.extensions import api, commands, configuration, metrics, reports
from gpubench_plugin.cli.main import build_parser
from gpubench_plugin.config import schema_errors
from gpubench_plugin.config.fixture_choice import FIXTURE_MODULES
from gpubench_plugin.config.layers import PROFILES
from gpubench_plugin.config.sections import MeasureSection
from gpubench_plugin.config.settings import FLAGS, OPTIONS
from gpubench_plugin.core import catalog
from tests.support.documents import ROOT, documents
from tests.support.shipped import shipped

if TYPE_CHECKING:
    from pathlib import Path


def rows(text: str) -> dict[str, list[str]]:
    """The cells behind the first one of each row, by the first name in that."""
    lines = [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line[:3] == "| `"]
    return {line[0].split("`")[1]: [cell.strip() for cell in line[1:]] for line in lines}


def test_every_block_names_a_function() -> None:
    """A page gets its text from one, and each of them has a page."""
    blocks = re.compile(r"^```\{generated\} (\w+)\.(\w+)$", re.MULTILINE)
    found = [block for page in documents() for block in blocks.findall(page.read_text("utf-8"))]
    assert all(callable(getattr(import_module(f"docs.extensions.{m}"), f)) for m, f in found)
    modules = {"api", "commands", "configuration", "metrics", "reports"}
    assert {module for module, _ in found} == modules


@pytest.mark.slow
def test_every_key_has_its_row() -> None:
    """With what it allows, its default and a meaning; those of workloads, too."""
    table = rows(configuration.keys())
    names = {".".join(key) for key, _ in schema_errors.walk(configuration.SCHEMA)}
    assert table.keys() == names
    workloads = rows(configuration.workload_keys())
    assert "model.hidden_sizes" in workloads
    assert [name for name, cells in (table | workloads).items() if not all(cells)] == []
    assert table["inference.batch_size"][:2] == ["integer > 0 or max or null", "`null`"]
    assert table["training.momentum"][:2] == [r"number ≥ 0 \< 1", "`0.9`"]


def test_profiles_stand_beside_the_defaults() -> None:
    """Of each key that one of them replaces, all values are shown."""
    plain, table = MeasureSection(), rows(configuration.profiles())
    assert table.keys() == {f"measure.{key}" for keys in PROFILES.values() for key in keys}
    for key in PROFILES["quick"] | PROFILES["full"]:
        usual = getattr(plain, key)
        values = (usual, *(PROFILES[name].get(key, usual) for name in ("quick", "full")))
        assert table[f"measure.{key}"] == [f"{value:g}" for value in values]


def test_every_metric_has_its_row() -> None:
    """With unit, direction and meaning."""
    sources = [catalog.load("metrics", name) for name in shipped("metrics")]
    table = rows(metrics.metrics())
    assert table.keys() == {name for source in sources for name in source.produces}
    assert [name for name, cells in table.items() if not all(cells)] == []
    assert table["step_time_s"] == ["s", "lower", "Median of the rounds"]


def test_every_option_has_its_row() -> None:
    """Of pytest and of each command; ini keys and marks, too."""
    shown = {name.partition("=")[0] for name in rows(commands.options())}
    assert shown == {f"--{name}" for name in FLAGS}
    assert {"gpubench_timeout_s", "gpubench_paths"} < rows(commands.ini_keys()).keys()
    assert any(name.startswith("gpubench_full(") for name in rows(commands.marks()))
    text = commands.commands()
    for parser in commands.walk(build_parser()):
        assert f"\n## {parser.prog}\n" in f"\n{text}"
        options = {name for action in parser._actions for name in action.option_strings}
        assert [name for name in options - {"-h", "--help"} if f"`{name}`" not in text] == []
    assert [name for name, cells in rows(text).items() if not all(cells)] == []


def test_help_names_no_file_of_this_repository() -> None:
    """Whoever installed a wheel has no pages."""
    text = [f"{option.group} {option.help} {option.ini_help}" for option in OPTIONS.values()]
    text += [parser.format_help() for parser in commands.walk(build_parser())]
    assert [line for line in text if "docs/" in line or ".md" in line] == []


def test_every_public_name_is_documented() -> None:
    """What is imported, asked for, implemented or derived from."""
    public = api.public_names()
    assert [n for n in gpubench_plugin.__all__ if f":: gpubench_plugin.{n}\n" not in public] == []
    fixtures = api.fixtures()
    names = {n for module in FIXTURE_MODULES for n in vars(import_module(module))}
    assert {"gpubench", "trainer", "precision"} < names
    assert [n for n in ("gpubench", "trainer", "precision") if f":: {n}\n" not in fixtures] == []
    assert "hookspecs.pytest_gpubench_metrics\n" in api.hooks()
    assert ":: gpubench_plugin.workloads.Workload\n" in api.bases()


def test_markdown_of_cells_shows_what_was_written() -> None:
    """Neither a bar nor an angle bracket ends a cell or vanishes as a tag, in or out of code."""
    from docs.extensions.markdown import table

    assert table(("a",), [("x|y <name> `<name>`",)]).splitlines()[2] == r"| x\|y \<name> `<name>` |"


def test_pages_that_include_a_document_are_left_out() -> None:
    """The documents themselves are read instead."""
    assert ROOT / "docs" / "start.md" not in documents()
    assert ROOT / "README.md" in documents()


def test_pages_of_recorded_results_are_those_that_the_guide_leads_to(tmp_path: Path) -> None:
    """A run that a gate failed, a comparison and a site, without where they were measured."""
    reports.write_pages(tmp_path / "report")
    leads = re.findall(r'href="\.\./([^"]+)"', reports.links())
    run, comparison, index = ((tmp_path / lead).read_text(encoding="utf-8") for lead in leads)
    assert "peaks regressed: step_time_min_s 77.50 µs → 95.58 µs" in run
    assert "spectrum improved: step_time_min_s 1.092 ms → 395.5 µs" in comparison
    assert "new level -62.2%" in index
    pages = [page.read_text(encoding="utf-8") for page in tmp_path.rglob("*.html")]
    assert len(pages) == 3 + 17 + 1
    assert not [page for page in pages if re.search("bench-1|/tmp/", page)]
