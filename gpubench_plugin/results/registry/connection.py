"""Access to the registry for sessions and commands, which go on without it."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpubench_plugin.core.errors import GpubenchError, RegistryError
from gpubench_plugin.results.registry.locations import NONE, TIMEOUT_S, location

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpubench_plugin.results.registry.registry import Registry
    from gpubench_plugin.results.run_directory import RunDirectory

_CATCH_UP_S: Final = 10.0
"""For storing what is missing whenever the registry is opened."""


@dataclass(frozen=True, kw_only=True)
class Connection:
    """The registry; None if there is none, or if it cannot be reached: then `error` says why.

    `notes` say what it lacks.
    """

    registry: Registry | None = None
    error: str = ""
    notes: tuple[str, ...] = ()


@contextmanager
def connect(url: str, results_dir: Path) -> Iterator[Connection]:
    """Open the registry at `url` for a ``with`` block, and store what it lacks; never raises.

    The default file is created beside the first run; without any there is no registry.
    """
    if url == NONE or not (url or results_dir.is_dir()):
        yield Connection()
        return
    from gpubench_plugin.results.registry.registry import Registry

    try:
        registry = Registry.open(url, results_dir, create=not url)
    except RegistryError as error:
        yield Connection(error=str(error))
        return
    with registry:
        try:
            report = registry.ingest_all(limit_s=_CATCH_UP_S)
            left = f"the registry still lacks {report.left} runs; 'gpubench db ingest' stores them"
            skipped = tuple(f"skipped: {error}" for error in report.errors)
            notes = (left, *skipped) if report.left else skipped
        except RegistryError as error:  # such as a file that is read-only
            notes = (f"the latest runs may be missing: {error}",)
        yield Connection(registry=registry, notes=notes)


def store_run(
    url: str, results_dir: Path, directory: RunDirectory, *, timeout_s: float = TIMEOUT_S
) -> str | None:
    """Store the run in `directory`, and what the registry lacks besides; never raises.

    The default file is left to whoever reads it next, unless this process has loaded SQLAlchemy for
    something else: loading it takes longer than to measure a plain function.

    Returns:
        None if stored, disabled (`url` is ``none``) or left, else one line for the user with the
        reason.
    """
    if url == NONE or not (url or "sqlalchemy" in sys.modules):
        return None
    try:
        from gpubench_plugin.results.registry.registry import Registry

        with Registry.open(url, results_dir, timeout_s=timeout_s) as registry:
            registry.ingest(directory)
            registry.ingest_all(limit_s=_CATCH_UP_S)
    except GpubenchError as error:
        reason = str(error)
    except Exception as error:  # whatever it is, the results are already recorded
        reason = location(url, results_dir).redact(repr(error))
    else:
        return None
    return (
        f"registry: {' '.join(reason.split())}; whatever opens the registry next stores the run, "
        "such as another run or 'gpubench db ingest'"
    )
