"""Tests of naming what differs between two records."""

from __future__ import annotations

from gpubench_plugin.environment.fingerprints import change_text, differences, flat


def test_nested_facts_are_flat() -> None:
    """Mappings are named by dot key and their lists by number; a list of values stays one."""
    facts = {"a": {"b": 1, "none": {}}, "c": [{"d": 2}, {"d": 3}], "e": [4, 5], "f": None}
    assert flat(facts) == {"a.b": 1, "c.0.d": 2, "c.1.d": 3, "e": [4, 5], "f": None}


def test_only_what_differs_is_told() -> None:
    """A value that changed, one that is new and one that is gone, with both their values."""
    before = {"same": 1, "changed": "a", "gone": None}
    now = {"same": 1, "changed": "b", "new": 2}
    assert {key: change_text(pair) for key, pair in differences(before, now).items()} == {
        "changed": '"a" in the run, "b" now',
        "gone": "null in the run, absent now",
        "new": "absent in the run, 2 now",
    }
