"""The sides of a report: runs, with as much of their measurements as their source has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from gpubench_plugin.core.records import Benchmark, Measurement, Result, Run, shared
from gpubench_plugin.results.progress import Curve, benchmark_events, curves_of
from gpubench_plugin.results.reader import RunReader
from gpubench_plugin.results.run_directory import RunDirectory


@dataclass(frozen=True, kw_only=True)
class Side:
    """A run, or several launches, with the latest measurement of each benchmark by node id.

    `run` has the facts of the latest and the start of the first. `readers` are those of folders
    that are here, oldest first.
    """

    run: Run
    measurements: Mapping[str, Measurement]
    readers: tuple[RunReader, ...] = ()

    @classmethod
    def of(cls, *runs: Run) -> Side:
        """The side of runs from any source, oldest first."""
        measurements: dict[str, Measurement] = {}
        readers = []
        for run in runs:
            directory = RunDirectory(path=run.path) if run.path else None
            if directory is not None and directory.journal.is_file():
                readers.append(RunReader(directory))
                measurements |= readers[-1].numbers
            else:
                measurements |= {name: _measurement_of(r) for name, r in run.results.items()}
        latest = replace(runs[-1], started=runs[0].started)
        return cls(run=latest, measurements=measurements, readers=tuple(readers))

    @property
    def command(self) -> tuple[str, ...]:
        """Arguments of pytest, where they are known."""
        return self.readers[-1].facts.command if self.readers else ()

    def measurement(self, name: str) -> Measurement | None:
        """The benchmark's measurement, with samples where there are any; None without one."""
        having = (each for each in reversed(self.readers) if name in each.numbers)
        reader = next(having, None)
        return reader.measurement(name) if reader else self.measurements.get(name)

    def curves(self) -> Iterator[Curve]:
        """Curves of the latest trainings, those of a benchmark together."""
        yield from curves_of(e for each in self.readers for e in benchmark_events(each.lines()))


def _measurement_of(result: Result) -> Measurement:
    """What a comparison knows of a benchmark, as a record."""
    return Measurement(
        **shared(Benchmark, result),
        name=result.id.rpartition("::")[2],
        params={},
        world_size=int(result.configuration.get("distributed.world_size", 1)),
        launches=max(len(result.launches), 1),
        metrics=result.metrics,
    )
