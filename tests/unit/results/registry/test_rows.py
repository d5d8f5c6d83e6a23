"""Tests of what is stored of a result beside its settings."""

from __future__ import annotations

import pytest

from gpubench_plugin.core.records import Result
from gpubench_plugin.results.registry import rows

RESULT = Result(id="a", outcome="measured", settings={"measure.by": "steps"})


@pytest.mark.parametrize("work", [None, {}, {"samples": 8.0}])
def test_settings_and_work_are_told_apart(work: dict[str, float] | None) -> None:
    """Empty amounts of work differ from unrecorded ones."""
    result = Result(id="a", outcome="measured", settings=RESULT.settings, work=work)
    settings, others = rows.apart(rows.beside_settings(result))
    assert settings == RESULT.settings
    assert others.get("work") == work


def test_a_field_without_a_column_is_stored_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where it is not its default: rows of earlier versions have it too."""
    monkeypatch.setattr(rows, "_OTHERS", ("pinned", "launches"))
    result = Result(id="a", outcome="measured", settings=RESULT.settings, launches=({"m": 1.0},))
    together = rows.beside_settings(result)
    assert together == {"measure.by": "steps", "record.launches": ({"m": 1.0},)}
    assert rows.apart(together) == (RESULT.settings, {"work": None, "launches": ({"m": 1.0},)})
    assert rows.beside_settings(RESULT) == RESULT.settings
