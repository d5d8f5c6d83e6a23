"""With which options pytest-benchmark measured a test: its numbers compare where they are equal."""

from __future__ import annotations

import inspect
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.config.parametrize import FOREIGN_FIXTURE
from gpubench_plugin.results.foreign_options import SECTION, settings_of, told

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest
    from pytest_benchmark.fixture import BenchmarkFixture

    from gpubench_plugin.records import Measurement

_CALIBRATION: Final = "calibration_precision"
_ROUNDS: Final = ("rounds", "iterations", "warmup_rounds")


class Options:
    """The options of one test's fixture `benchmark`, which has not measured yet."""

    def __init__(self, benchmark: BenchmarkFixture, item: pytest.Item) -> None:
        self._benchmark = benchmark
        self._item = item
        self._rounds: dict[str, int] | None = None
        # Nothing that pytest-benchmark keeps tells how `pedantic` was called.
        setattr(benchmark, "pedantic", self._noting(benchmark.pedantic))  # noqa: B010 # a method

    def added_to(self, measurement: Measurement) -> Measurement:
        """`measurement`, which the fixture has made, with what it was made with."""
        options = self._told()
        return replace(
            measurement,
            configuration={**measurement.configuration, SECTION: options},
            settings={**settings_of(options), **measurement.settings},
        )

    def _told(self) -> dict[str, Any]:
        kept: dict[str, Any] = self._benchmark.stats.options
        if self._rounds is not None:
            return {**told(kept, pedantic=True), **self._rounds}
        return told({**kept, _CALIBRATION: self._calibration()})

    def _calibration(self) -> object:
        """What alone is not kept with the results: as the mark says, or the command line."""
        mark = self._item.get_closest_marker(FOREIGN_FIXTURE)
        stated = {} if mark is None else mark.kwargs
        if _CALIBRATION in stated:
            return stated[_CALIBRATION]
        return self._item.config.getoption(f"benchmark_{_CALIBRATION}", None)

    def _noting(self, pedantic: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(pedantic)

        @wraps(pedantic)
        def noting(*args: Any, **kwargs: Any) -> Any:
            made = pedantic(*args, **kwargs)
            called = signature.bind(*args, **kwargs)
            called.apply_defaults()
            self._rounds = {name: int(called.arguments[name]) for name in _ROUNDS}
            return made

        return noting
