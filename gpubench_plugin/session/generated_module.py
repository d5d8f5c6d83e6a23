"""The test module of ``--gpubench-measure``: collected as a file is, but written nowhere."""

from __future__ import annotations

import linecache
import sys
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    from gpubench_plugin.config.model_request import ModelRequest


class GeneratedModules:
    """Plugin that collects the module of a request, and nothing else unless a path is given."""

    def __init__(self, request: ModelRequest) -> None:
        self._request = request

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> None:
        """Leave out what pytest collects without a path."""
        config = session.config
        if config.args_source is not pytest.Config.ArgsSource.ARGS:
            config.args = []

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Add the module to what the session has collected."""
        report = yield
        if isinstance(collector, pytest.Session):
            path = collector.path / f"test_{self._request.name}.py"
            module = _GeneratedModule.from_parent(collector, path=path)
            module.source = self._request.module
            report.result.append(module)
        return report


class _GeneratedModule(pytest.Module):
    source: str

    def _getobj(self) -> ModuleType:
        name, folder = str(self.path), str(self.path.parent)
        if folder not in sys.path:  # as pytest does for a file there
            sys.path.insert(0, folder)
        lines = self.source.splitlines(keepends=True)
        linecache.cache[name] = len(self.source), None, lines, name  # for tracebacks
        module = ModuleType(self.path.stem)
        module.__file__ = name
        exec(compile(self.source, name, "exec"), vars(module))
        return module
