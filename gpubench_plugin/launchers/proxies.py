"""Tests that run on ranks, as the controller's pytest sees them."""

from __future__ import annotations

from functools import cache, partialmethod
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubench_plugin.launchers.merged_reports import Phase

_ON_RANKS: Final = frozenset(
    {
        *("pytest_runtest_setup", "pytest_runtest_call", "pytest_runtest_teardown"),
        "pytest_runtest_makereport",
    }
)
"""Hooks of a conftest, and of marks that skip or expect a failure, that run on the ranks alone."""


class Proxy:
    """Mixin of an item whose phases are run by `order`, and which sets up no fixtures here.

    pytest's protocol runs around it once, with what other plugins wrap around a test.
    """

    order: Callable[[pytest.Item, Phase], None]

    def _run_on_ranks(self, phase: Phase) -> None:
        assert isinstance(self, pytest.Item)
        self.order(self, phase)

    setup = partialmethod(_run_on_ranks, "setup")
    runtest = partialmethod(_run_on_ranks, "call")
    teardown = partialmethod(_run_on_ranks, "teardown")

    @property
    def ihook(self) -> Any:
        """Hooks, without those that belong to the ranks."""
        assert isinstance(self, pytest.Item)
        hooks = super().ihook  # type: ignore[misc] # that of the class it is mixed into
        return _ControllerHooks(self.config.pluginmanager, hooks)


class _ControllerHooks:
    def __init__(self, manager: pytest.PytestPluginManager, hooks: Any):
        self._manager = manager
        self._hooks = hooks

    def __getattr__(self, name: str) -> Any:
        if name not in _ON_RANKS:
            return getattr(self._hooks, name)
        plugins = [p for p in self._manager.get_plugins() if _belongs_to_ranks(p)]
        return self._manager.subset_hook_caller(name, plugins)


def _belongs_to_ranks(plugin: object) -> bool:
    return is_conftest(plugin) or getattr(plugin, "__name__", "") == "_pytest.skipping"


def is_conftest(plugin: object) -> bool:
    """Whether the plugin is a module ``conftest.py``."""
    return (getattr(plugin, "__file__", None) or "").endswith("conftest.py")


def make_proxy(item: pytest.Item, order: Callable[[pytest.Item, Phase], None]) -> None:
    """Turn `item` into a proxy in place, so that what knows it keeps it."""
    if not is_proxy(item):  # a conftest may list an item twice
        item.__class__ = _proxy_class(type(item))
        vars(item)["order"] = order


@cache
def _proxy_class(kind: type[pytest.Item]) -> type[pytest.Item]:
    return type(kind.__name__, (Proxy, kind), {})


def is_proxy(item: pytest.Item) -> bool:
    """Whether the test runs on ranks."""
    return isinstance(item, Proxy)
