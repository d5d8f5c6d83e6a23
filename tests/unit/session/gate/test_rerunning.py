"""What pytest remembers of failed gate items."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from gpubench_plugin.session.gate.plugin import remember_benchmarks

IDS = {
    "test_x.py::test_a::gate": "test_x.py::test_a",
    "test_x.py::test_a::gate[fp32]": "test_x.py::test_a[fp32]",
}


class Cache(dict[str, Any]):
    """As much of pytest's cache as is used."""

    set = dict.__setitem__


def remembered(**values: Any) -> Cache:
    cache = Cache({f"cache/{name}": value for name, value in values.items()})
    remember_benchmarks(SimpleNamespace(cache=cache), IDS)  # type: ignore[arg-type] # a stand-in
    return cache


def test_benchmarks_take_the_place_of_their_gate_items() -> None:
    """So --lf measures again; other failures stay."""
    failed = {"test_x.py::test_a::gate[fp32]": True, "test_x.py::test_b": True}
    cache = remembered(lastfailed=failed)
    assert cache["cache/lastfailed"] == {"test_x.py::test_a[fp32]": True, "test_x.py::test_b": True}


def test_without_gate_items_or_cache_nothing_changes() -> None:
    """Also with -p no:cacheprovider."""
    remember_benchmarks(SimpleNamespace(), IDS)  # type: ignore[arg-type] # a stand-in
    values = {"cache/lastfailed": {"test_x.py::test_b": True}}
    assert remembered(lastfailed={"test_x.py::test_b": True}) == values
