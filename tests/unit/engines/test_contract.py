"""The engines that need no service keep to what the front relies on, one of others' too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.config.sections import EngineSection
from gpubench_plugin.engines import local
from gpubench_plugin.engines.local import Local
from tests.support.engine_contract import EngineContract
from tests.support.toy_engine import toy_engine
from tests.support.toy_engine.toy_engine import PLAN, Batch, Plan, Toy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpubench_plugin.engines.base import Engine

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """From SIGTERM to SIGKILL; the sessions of these tests write no results."""
    monkeypatch.setattr(local, "_GRACE_S", 1.0)
    monkeypatch.setattr(toy_engine, "_GRACE_S", 1.0)


class TestLocal(EngineContract):
    """Child processes in a slot."""

    @pytest.fixture
    def engine(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # locks of its own
        engine = Local("1", EngineSection())
        yield engine
        engine.close()


class TestToy(EngineContract):
    """Nodes with folders of their own."""

    @pytest.fixture
    def engine(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
        monkeypatch.setenv(PLAN, Plan(shared=False).write(tmp_path / "plan.json")[PLAN])
        engine = Toy("2", EngineSection())
        yield engine
        engine.close()


class TestBatch(EngineContract):
    """Jobs that outlive the session, in shared folders."""

    @pytest.fixture
    def engine(self) -> Iterator[Engine]:
        engine = Batch("1", EngineSection())
        yield engine
        engine.close()
