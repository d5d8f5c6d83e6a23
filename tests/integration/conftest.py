"""Whole sessions in a temporary project, within this process wherever that shows the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.projects import InlineProject, Project


@pytest.fixture
def project(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Project:
    """An empty project; its sessions are processes for a test that is marked ``own_process``."""
    path = tmp_path / "project"
    path.mkdir()
    if request.node.get_closest_marker("own_process"):
        return Project(path)
    return InlineProject(path, monkeypatch)
