"""A temporary project whose pytest runs in a process of its own, with the plugin installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.projects import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An empty project."""
    path = tmp_path / "project"
    path.mkdir()
    return Project(path)
