"""Runs that can be found: those of the results directory, and of the registry."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Final

from gpubench_plugin.core.errors import RegistryError
from gpubench_plugin.results.registry.connection import Connection, connect

if TYPE_CHECKING:
    from pathlib import Path

    from gpubench_plugin.results.registry.registry import Registry

_INDEXING_S: Final = 60.0
"""For reading run directories where there is no registry: about 10,000 of few benchmarks."""


class KnownRuns(ExitStack):
    """A context manager that opens the registry when it is first needed.

    Args:
        url: the registry's URL, ``none``, or empty for the default one.
        results_dir: where runs and baselines are.
    """

    def __init__(self, url: str, results_dir: Path):
        super().__init__()
        self.results_dir = results_dir
        self._url = url
        self.index_notes: tuple[str, ...] = ()
        """What :attr:`index` lacks, for the user."""

    @cached_property
    def reached(self) -> Connection:
        """The registry, open until the end of the ``with`` block."""
        return self.enter_context(connect(self._url, self.results_dir))

    @property
    def registry(self) -> Registry | None:
        """The registry, if any; raises RegistryError if it cannot be reached."""
        if self.reached.error:
            raise RegistryError(self.reached.error)
        return self.reached.registry

    @cached_property
    def index(self) -> Registry:
        """The registry; where there is none, the run directories, indexed in memory."""
        reached = self.reached
        if reached.registry is not None:
            self.index_notes = reached.notes
            return reached.registry
        from gpubench_plugin.results.registry.registry import Registry

        registry = self.enter_context(Registry.of_directories(self.results_dir))
        report = registry.ingest_all(limit_s=_INDEXING_S)
        unavailable = f"registry unavailable, only runs in {self.results_dir} are considered: "
        left = f"the {report.left} oldest runs were not read; a registry has them all"
        self.index_notes = (
            *((unavailable + reached.error,) if reached.error else ()),
            *(f"skipped: {error}" for error in report.errors),
            *((left,) if report.left else ()),
        )
        return registry
