"""Launches that were really recorded, drawn again as the launches of suites without any effect.

The data are in ``data/launches.json``, what they are stands in them. A suite has several copies of
each recorded benchmark, drawn independently.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import numpy as np

from gpubench_plugin.compare.statistics import Floats
from tests.support.simulation import BENCHMARKS, Draw

FILE: Final = Path(__file__).parent / "data" / "launches.json"


def parts_of(durations: Floats) -> dict[str, Floats]:
    """The logs of minimum, median and mean over the last axis."""
    return {
        "floor": np.log(durations.min(axis=-1)),
        "median": np.log(np.median(durations, axis=-1)),
        "rate": np.log(durations.mean(axis=-1)),
    }


def stretched(durations: Floats, *, every: tuple[int, ...], of: int, by: float) -> Floats:
    """Those of `of` calls in turn whose numbers are in `every` take `by` times as long."""
    chosen = np.isin(np.arange(durations.shape[-1]) % of, every)
    return np.where(chosen, by * durations, durations)


def quieter(
    parts: Mapping[str, Floats], recorded: Mapping[str, Floats], noise: float
) -> dict[str, Floats]:
    """The same launches with another noise: modes, slow launches and all in proportion.

    `noise` is that of floor or median of the `recorded` ones, whichever has more; per benchmark
    all parts are scaled by one factor.
    """
    spread = np.maximum(recorded["floor"].std(axis=-1), recorded["median"].std(axis=-1))
    factor = np.minimum(noise / spread, 1.0)[:, None]
    levels = {part: np.median(values, axis=-1, keepdims=True) for part, values in parts.items()}
    return {part: levels[part] + factor * (values - levels[part]) for part, values in parts.items()}


class Recording:
    """The recorded launches, the benchmark `first` being the one that a suite makes slower."""

    def __init__(self, first: str):
        recorded = json.loads(FILE.read_text(encoding="utf-8"))["launches"]
        order = [first, *(name for name in recorded if name != first)]
        # Nanoseconds, shaped (benchmarks, launches, durations).
        self._durations: Floats = np.array([recorded[name] for name in order], dtype=np.float64)
        self._which = np.arange(BENCHMARKS) % len(order)

    @staticmethod
    def names() -> list[str]:
        return list(json.loads(FILE.read_text(encoding="utf-8"))["launches"])

    def noise(self) -> dict[str, float]:
        """The noise of a launch of the first benchmark by part, whatever a few are like.

        From the differences of launches that followed each other; 1.4826 times the median of their
        sizes is the standard deviation of normal ones.
        """
        noise = {}
        for part, values in parts_of(self._durations[0]).items():
            differences = np.abs(values[1::2] - values[: len(values) // 2 * 2 : 2])
            noise[part] = float(1.4826 * np.median(differences) / 2**0.5)
        return noise

    def parts(
        self,
        seed: int,
        changed: Callable[[Floats], Floats] = lambda durations: durations,
        *,
        noise: float | None = None,
    ) -> Callable[[int, int], Mapping[str, Floats]]:
        """Log ratios of pairs drawn with replacement, by part.

        The durations of the head of the first benchmark are `changed`. With `noise` the launches
        are :func:`quieter`, whatever they are like otherwise.
        """
        generator = np.random.default_rng(seed)
        base, head = parts_of(self._durations), parts_of(changed(self._durations))
        if noise is not None:
            base, head = quieter(base, base, noise), quieter(head, base, noise)

        def drawn(suites: int, pairs: int) -> Mapping[str, Floats]:
            shape = (2, suites, BENCHMARKS, pairs)
            before, now = generator.integers(self._launches, size=shape)
            which = self._which[:, None]
            differences = {
                part: base[part][which, now] - base[part][which, before] for part in base
            }
            for part, values in differences.items():
                values[:, 0] += (head[part] - base[part])[0, now[:, 0]]
            return differences

        return drawn

    def draw(self, seed: int) -> Draw:
        """The minima of launches drawn independently, with replacement."""
        generator = np.random.default_rng(seed)
        minima = np.log(self._durations.min(axis=-1))

        def drawn(suites: int, launches: int) -> Floats:
            numbers = generator.integers(self._launches, size=(suites, BENCHMARKS, launches))
            values: Floats = minima[self._which[:, None], numbers]
            return values

        return drawn

    def neighbours(self, seed: int, suites: int, pairs: int) -> Floats:
        """Log ratios of launches that followed each other, each pair in either order."""
        generator = np.random.default_rng(seed)
        minima = np.log(self._durations.min(axis=-1))[self._which]
        ratios = minima[:, 1::2] - minima[:, ::2]
        chosen = generator.random((suites, *ratios.shape)).argsort(axis=-1)[..., :pairs]
        signs = generator.choice([-1.0, 1.0], size=chosen.shape)
        values: Floats = signs * np.take_along_axis(ratios[None], chosen, axis=-1)
        return values

    @property
    def _launches(self) -> int:
        launches: int = self._durations.shape[1]
        return launches
