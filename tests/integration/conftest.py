"""Whole sessions in a temporary project, within this process wherever that shows the same."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import pytest

import gpubench_plugin
from tests.support.projects import InlineProject, Project


@pytest.fixture(scope="session")
def _imported() -> None:
    """Import all that sessions import: pytester has a process forget what they import first."""
    for module in pkgutil.walk_packages(gpubench_plugin.__path__, "gpubench_plugin."):
        if ".migrations" not in module.name:
            import_module(module.name)


@pytest.fixture
def project(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Project:
    """An empty project; its sessions are processes for a test that is marked ``own_process``."""
    if request.node.get_closest_marker("own_process"):
        path = request.getfixturevalue("tmp_path") / "project"
        path.mkdir()
        return Project(path)
    request.getfixturevalue("_imported")
    return InlineProject(request.getfixturevalue("pytester"), monkeypatch)
