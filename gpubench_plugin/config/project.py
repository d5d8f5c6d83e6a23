"""The project that a folder belongs to, as pytest determines it, without a session of pytest.

Source: https://docs.pytest.org/en/stable/reference/customize.html
"""

from __future__ import annotations

import configparser
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from gpubench_plugin.config.options import INI, option_dest
from gpubench_plugin.core.errors import BrokenFile

_Keys = Mapping[str, Any]


def project_results_dir(cwd: Path) -> Path:
    """Absolute results directory of sessions in the project that `cwd` is in.

    Raises:
        BrokenFile: pytest's configuration file cannot be read.
    """
    root, keys = _project(cwd)
    name, (default, _) = "results-dir", INI["results-dir"]
    return root / (keys.get(option_dest(name)) or default)


def _project(cwd: Path) -> tuple[Path, _Keys]:
    """The rootdir of a session in `cwd` without arguments, and its configuration."""
    folders = [cwd, *cwd.parents]
    for folder in folders:
        for keys in _configurations(folder):
            return folder, keys
    marks = ("pyproject.toml", "setup.py")  # without pytest's section they still tell the root
    roots = (folder for mark in marks for folder in folders if (folder / mark).is_file())
    return next(roots, cwd), {}


def _configurations(folder: Path) -> Iterator[_Keys]:
    """The configurations of pytest in the folder, the one that has effect first."""
    for name, read in _READERS.items():
        path = folder / name
        if path.is_file():
            try:
                keys = read(path.read_text(encoding="utf-8"))
            except (OSError, ValueError, configparser.Error) as error:
                problem = str(error).partition("\n")[0]
                raise BrokenFile(f"{path}: unreadable for pytest: {problem}") from error
            if keys is not None:
                yield keys


def _pytest_toml(text: str) -> _Keys | None:
    keys: _Keys = tomllib.loads(text).get("pytest", {})
    return keys


def _pyproject(text: str) -> _Keys | None:
    table = tomllib.loads(text).get("tool", {}).get("pytest", {})
    keys: _Keys | None = table.get("ini_options")
    return keys if keys is not None else (table or None)


def _ini_section(section: str, *, required: bool) -> Callable[[str], _Keys | None]:
    def read(text: str) -> _Keys | None:
        parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
        parser.read_string(text)
        if parser.has_section(section):
            return dict(parser.items(section))
        return None if required else {}

    return read


_READERS: Final[Mapping[str, Callable[[str], _Keys | None]]] = {
    "pytest.toml": _pytest_toml,
    ".pytest.toml": _pytest_toml,
    "pytest.ini": _ini_section("pytest", required=False),
    ".pytest.ini": _ini_section("pytest", required=False),
    "pyproject.toml": _pyproject,
    "tox.ini": _ini_section("pytest", required=True),
    "setup.cfg": _ini_section("tool:pytest", required=True),
}
"""Readers of pytest's configuration by file name, in pytest's order; None: it has none."""
