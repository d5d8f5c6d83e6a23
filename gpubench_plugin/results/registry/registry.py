"""The registry: opened, asked and told.

Whatever goes wrong with the database is a :class:`RegistryError`: it is down, locked, read-only,
full, damaged or of another schema. The run directories are not touched by any of it.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Final, Self

from gpubench_plugin.results.registry.locations import location

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from pathlib import Path
    from types import TracebackType

    from sqlalchemy import Connection

    from gpubench_plugin.records import Run
    from gpubench_plugin.results.registry.database import Database
    from gpubench_plugin.results.registry.rows import Point, RunRow
    from gpubench_plugin.results.run_directory import RunDirectory
    from gpubench_plugin.results.tags import TagChange

PATIENCE_S: Final = 30.0
"""How long to wait for a database that others are writing, or that does not answer."""


class Registry:
    """An open registry; a context manager. One process may hold several."""

    def __init__(self, database: Database, results_dir: Path):
        self.database = database
        self.results_dir = results_dir

    @classmethod
    def open(
        cls, url: str, results_dir: Path, *, create: bool = True, patience_s: float = PATIENCE_S
    ) -> Registry:
        """The registry at `url`; an empty one means ``registry.sqlite`` in `results_dir`.

        Where there is none it is made, if `create` is set. One of an older schema is not changed:
        ``gpubench db upgrade`` does that.

        Raises:
            UsageProblem: the URL names no database that can be used.
            RegistryError: the database cannot be used now, and why.
        """
        from gpubench_plugin.results.registry import schema
        from gpubench_plugin.results.registry.database import Database

        where = location(url, results_dir)
        database = Database.open(where, create=create, patience_s=patience_s)
        try:
            schema.expect_current(database, create=create)
        except BaseException:
            database.close()
            raise
        return cls(database, results_dir)

    def ingest(self, directory: RunDirectory) -> bool:
        """Store the run in `directory` as it is now; whether that changed anything.

        Raises:
            RegistryError: the database cannot be used now; so for all methods.
            ResultsError: the run cannot be read, or another one with its id is stored.
        """
        from gpubench_plugin.results.registry import ingest

        with self.database.answering():
            return ingest.ingest(self.database, directory)

    def runs(
        self,
        *,
        experiment: str | None = None,
        branch: str | None = None,
        tag: str | None = None,
        limit: int | None = None,
    ) -> list[RunRow]:
        """The latest runs, the latest first; those of one experiment, branch or tag if given."""
        from gpubench_plugin.results.registry import queries

        with self._reading() as connection:
            return queries.runs(
                connection, experiment=experiment, branch=branch, tag=tag, limit=limit
            )

    def earlier(
        self,
        benchmarks: Collection[str],
        *,
        branch: str | None,
        since: str | None,
        limit: int,
        fingerprints: Mapping[str, str] | None = None,
    ) -> list[Run]:
        """Runs that `benchmarks` can be compared with, oldest first, with no other benchmarks.

        They are complete, clean and not regressed, and each benchmark in them was measured. Of
        each benchmark there are up to `limit` runs: the first ones from the run `since` on,
        itself included, or the latest where `since` is None. A `branch` of None means any. Where
        `fingerprints` has one for a benchmark (:func:`~.fingerprints.fingerprint_of` of machine,
        settings and clock), only runs with it count.
        """
        from gpubench_plugin.results.registry import queries

        with self._reading() as connection:
            return queries.earlier(
                connection,
                benchmarks,
                branch=branch,
                since=since,
                limit=limit,
                fingerprints=fingerprints or {},
            )

    def points(
        self, benchmark: str, metric: str, *, branch: str | None = None, limit: int = 1000
    ) -> list[Point]:
        """The latest `limit` results of a benchmark that have a metric, of whatever run.

        The oldest comes first.
        """
        from gpubench_plugin.results.registry import queries

        with self._reading() as connection:
            return queries.points(connection, benchmark, metric, branch=branch, limit=limit)

    def run(self, run_id: str) -> Run | None:
        """The run with exactly that id, all its benchmarks included, or None."""
        from gpubench_plugin.results.registry import queries

        with self._reading() as connection:
            return queries.run(connection, run_id, self.results_dir)

    def states(self, run_ids: Collection[str]) -> dict[str, str]:
        """Of those of the runs that are stored, the digest of the files they were stored from."""
        from gpubench_plugin.results.registry import queries

        with self._reading() as connection:
            return queries.states(connection, run_ids)

    def tag_changes(self, run_id: str) -> frozenset[TagChange]:
        """The tags that a run was given or lost on any machine, as far as is stored.

        Raises:
            ResultsError: they cannot be read; so for :meth:`tag`.
        """
        from gpubench_plugin.results.registry import ingest, queries

        with self._reading() as connection:
            text = queries.text_of(connection, ingest.TAGS_KIND, run_id)
        return ingest.stored_tags(text, run_id)

    def tag(self, directory: RunDirectory) -> tuple[str, ...] | None:
        """Let a stored run have the tags of `directory`, and those it was given elsewhere.

        Returns:
            The tags it has then; None where it is not stored.
        """
        from gpubench_plugin.results.registry import ingest

        with self._writing() as connection:
            return ingest.tag(connection, directory)

    def forget(self, run_id: str) -> None:
        """Let the registry hold no such run; its directory is not touched."""
        from gpubench_plugin.results.registry import ingest, queries

        with self._writing() as connection:
            ingest.forget(connection, run_id)
            queries.remove(connection, ingest.TAGS_KIND, run_id)

    def merge_document(
        self, kind: str, name: str, merged: Callable[[str | None], tuple[str, str]]
    ) -> str | None:
        """Replace a text by what `merged` makes of it; the text that was replaced.

        See :func:`.queries.merge`: of writers at the same time none overwrites the other's.
        """
        from gpubench_plugin.results.registry import queries

        return queries.merge(self._reading, self._writing, kind, name, merged)

    def documents(self, kind: str) -> dict[str, str]:
        """The texts of a kind by name."""
        from gpubench_plugin.results.registry import queries

        with self._reading() as connection:
            return queries.texts(connection, kind)

    def close(self) -> None:
        """Let go of the database; a second time does nothing."""
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with self.database.answering(), self.database.reading() as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self.database.answering(), self.database.writing() as connection:
            yield connection


def upgrade(url: str, results_dir: Path, *, patience_s: float = PATIENCE_S) -> bool:
    """Bring the tables of the registry at `url` up to date; whether there was anything to do.

    Raises:
        UsageProblem: the URL names no database that can be used.
        RegistryError: the tables are newer than this version knows, or somebody else's, or the
            database cannot be used now.
    """
    from gpubench_plugin.results.registry import schema
    from gpubench_plugin.results.registry.database import Database

    with closing(
        Database.open(location(url, results_dir), create=True, patience_s=patience_s)
    ) as database:
        return schema.migrate(database)
