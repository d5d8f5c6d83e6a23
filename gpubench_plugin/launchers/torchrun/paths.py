"""What ``torchrun -m pytest`` collects without a path: the benchmarks, instead of ``testpaths``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from gpubench_plugin.config.options import BENCHMARK_PATHS
from gpubench_plugin.launchers.output import GANG

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

_FOLDER: Final = "benchmarks"
"""Taken where the ini key is not set, and the folder has test files."""


def benchmark_paths(config: pytest.Config) -> list[str]:
    """Paths to collect instead of ``testpaths``; none where pytest's own choice stays.

    It stays in a gang, whose controller chooses, with a path on the command line, outside the
    rootdir, where pytest ignores ``testpaths`` too, and without ``testpaths``: all is collected.
    """
    options = config.known_args_namespace
    if GANG in os.environ or options.file_or_dir or config.invocation_params.dir != config.rootpath:
        return []
    if paths := config.getini(BENCHMARK_PATHS):
        return list(paths)
    is_limited = bool(config.getini("testpaths"))
    return [_FOLDER] if is_limited and _has_tests(config.rootpath / _FOLDER, config) else []


def _has_tests(folder: Path, config: pytest.Config) -> bool:
    return any(any(folder.rglob(pattern)) for pattern in config.getini("python_files"))
