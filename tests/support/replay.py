"""Launches that were really recorded, drawn again as the launches of suites without any effect.

The data are in ``data/launches.json``, what they are stands in them. A suite has several copies of
each recorded benchmark, drawn independently.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import numpy as np

from gpubench_plugin.compare import Floats
from tests.support.simulation import BENCHMARKS, Draw, Sample

FILE: Final = Path(__file__).parent / "data" / "launches.json"


class Recording:
    """The recorded launches, the benchmark `first` being the one that a suite makes slower."""

    def __init__(self, first: str):
        recorded = json.loads(FILE.read_text(encoding="utf-8"))["launches"]
        order = [first, *(name for name in recorded if name != first)]
        # Log nanoseconds, shaped (benchmarks, launches, minimum and quantiles).
        nanoseconds = np.array([recorded[name] for name in order], dtype=np.float64)
        self._seen: Floats = np.log(nanoseconds)
        self._which = np.arange(BENCHMARKS) % len(order)

    @staticmethod
    def names() -> list[str]:
        return list(json.loads(FILE.read_text(encoding="utf-8"))["launches"])

    def draw(self, seed: int) -> Draw:
        """The minima of launches drawn independently, with replacement."""
        generator = np.random.default_rng(seed)

        def drawn(suites: int, launches: int) -> Floats:
            numbers = generator.integers(self._launches, size=(suites, BENCHMARKS, launches))
            minima: Floats = self._seen[self._which[:, None], numbers, 0]
            return minima

        return drawn

    def sample(self, seed: int) -> Sample:
        """The quantiles of whole processes, as if they were their samples."""
        generator = np.random.default_rng(seed)

        def drawn(suites: int) -> Floats:
            numbers = generator.integers(self._launches, size=(suites, BENCHMARKS))
            quantiles: Floats = self._seen[self._which, numbers, 1:]
            return quantiles

        return drawn

    def neighbours(self, seed: int, suites: int, pairs: int) -> Floats:
        """Log ratios of launches that followed each other, each pair in either order."""
        generator = np.random.default_rng(seed)
        minima = self._seen[self._which, :, 0]
        ratios = minima[:, 1::2] - minima[:, ::2]
        chosen = generator.random((suites, *ratios.shape)).argsort(axis=-1)[..., :pairs]
        signs = generator.choice([-1.0, 1.0], size=chosen.shape)
        return signs * np.take_along_axis(ratios[None], chosen, axis=-1)

    @property
    def _launches(self) -> int:
        launches: int = self._seen.shape[1]
        return launches
