"""The project that a folder belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.config.settings import results_dir_from
from gpubench_plugin.core.errors import BrokenFile
from tests.support.pytest_versions import PYTEST_9

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

INI = "[tool.pytest.ini_options]\ngpubench_results_dir = 'kept'\n"


def write(folder: Path, files: Mapping[str, str]) -> Path:
    """Write the `files`, and return a folder below two others."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    below = folder / "a" / "b"
    below.mkdir(parents=True, exist_ok=True)
    return below


@pytest.mark.parametrize(
    ("files", "results"),
    [
        ({}, "a/b/results"),
        ({"pyproject.toml": INI}, "kept"),
        pytest.param(
            {"pyproject.toml": "[tool.pytest]\ngpubench_results_dir = 'kept'\n"},
            "kept",
            marks=PYTEST_9,
        ),
        ({"pyproject.toml": INI, "a/pyproject.toml": "[project]\nname = 'a'\n"}, "kept"),
        ({"pyproject.toml": INI, "pytest.ini": ""}, "results"),
        ({"pytest.ini": "[pytest]\ngpubench_results_dir = kept\n"}, "kept"),
        pytest.param(
            {"pytest.toml": "[pytest]\ngpubench_results_dir = 'kept'\n", "pytest.ini": ""},
            "kept",
            marks=PYTEST_9,
        ),
        pytest.param({"a/.pytest.toml": "", "pyproject.toml": INI}, "a/results", marks=PYTEST_9),
        ({"tox.ini": "[tox]\n", "setup.cfg": "[tool:pytest]\nx = 50%\n"}, "results"),
        ({"a/tox.ini": "[pytest]\ngpubench_results_dir = kept\n", "pyproject.toml": INI}, "a/kept"),
        ({"a/pyproject.toml": "[project]\nname = 'a'\n"}, "a/results"),
        ({"setup.py": ""}, "results"),
        ({"results/default/run/metrics.jsonl": ""}, "results"),
        ({"results/x.txt": "", "a/results/default/run/metrics.jsonl": ""}, "a/results"),
        ({"results/default/run/metrics.jsonl": "", "a/pytest.ini": ""}, "a/results"),
    ],
)
def test_results_are_where_pytest_writes_them(
    tmp_path: Path, files: Mapping[str, str], results: str
) -> None:
    """Below pytest's root, from any folder of it, as its configuration says, else upwards."""
    below = write(tmp_path, files)
    assert results_dir_from(below) == tmp_path / results


@pytest.mark.parametrize(("name", "text"), [("pyproject.toml", "[x"), ("pytest.ini", "x")])
def test_a_broken_configuration_is_named(tmp_path: Path, name: str, text: str) -> None:
    """As pytest would refuse it: its results could be anywhere."""
    with pytest.raises(BrokenFile, match=f"pytest's configuration is unreadable: .*{name}"):
        results_dir_from(write(tmp_path, {name: text}))
