"""Where the registry is, and access to it for sessions and commands, which go on without it."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from gpubench_plugin.core.errors import GpubenchError, RegistryError, UsageProblem, suggest
from gpubench_plugin.environment.redaction import HIDDEN, redact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubench_plugin.results.registry.registry import Registry
    from gpubench_plugin.results.run_directory import RunDirectory

NONE: Final = "none"
"""Value instead of a URL that disables the registry."""

FILE: Final = "registry.sqlite"
"""File name of the default registry in the results directory."""

TIMEOUT_S: Final = 30.0
"""Timeout of a locked or unresponsive database: long enough for other writers."""

_SCHEMES: Final = {
    "sqlite": "sqlite",
    "postgresql": "postgresql",
    "postgresql+psycopg": "postgresql",
}
_ALLOWED: Final = "sqlite:///registry.sqlite, postgresql+psycopg://user@host/database, or none"


@dataclass(frozen=True, kw_only=True)
class Location:
    """A database: absolute `file` for SQLite only, and the full `url`.

    `secrets` are the passwords in it, as written and decoded.
    """

    url: str = field(repr=False)
    file: Path | None = None
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @property
    def shown_name(self) -> str:
        """Display name without credentials."""
        return str(self.file) if self.file else redact(self.url)

    def redact(self, text: str) -> str:
        """Remove the URL's secrets from `text`."""
        for secret in self.secrets:
            text = text.replace(secret, HIDDEN)
        return redact(text)


def location(url: str, results_dir: Path, *, cwd: Path | None = None) -> Location:
    """Parse `url`; empty means the SQLite file in `results_dir`.

    A file is relative to `cwd`, by default the working directory.

    Raises:
        UsageProblem: the URL is invalid or unsupported.
        RegistryError: it is ``none``.
    """
    if url == NONE:
        raise RegistryError("the registry is disabled (--registry=none)")
    if not url:
        return _sqlite((results_dir / FILE).absolute())
    scheme, separator, remainder = url.partition("://")
    if not separator or scheme not in _SCHEMES:
        raise _unusable(url, f"unsupported database{suggest(scheme, _SCHEMES)}")
    if _SCHEMES[scheme] == "sqlite":
        return _sqlite_file(url, remainder, cwd or Path.cwd())
    return _postgresql(url, remainder)


def absolute_url(url: str, *, cwd: Path) -> str:
    """Validate `url` and make its path absolute; raises UsageProblem."""
    if url in {"", NONE}:
        return url
    parsed = location(url, cwd, cwd=cwd)
    return f"sqlite:///{parsed.file}" if parsed.file else url


def is_server(url: str) -> bool:
    """Whether `url` names a database that machines share."""
    return _SCHEMES.get(url.partition("://")[0]) == "postgresql"


def _sqlite_file(url: str, path_text: str, cwd: Path) -> Location:
    path = path_text.removeprefix("/")
    if not path_text.startswith("/") or not path or path == ":memory:":
        raise _unusable(url, "no file name")
    if "?" in path:
        raise _unusable(url, "only a file name is allowed, without parameters")
    return _sqlite(cwd / path)


def _sqlite(file: Path) -> Location:
    return Location(url=f"sqlite:///{file}", file=file)


def _postgresql(url: str, remainder: str) -> Location:
    if remainder.count("@") > 1:
        raise _unusable(url, "an @ in a user name, password or parameter must be written as %40")
    try:
        parts = urlsplit(f"postgresql://{remainder}")
        _, password = parts.port, parts.password or ""
    except ValueError:  # its message may contain part of the password
        raise _unusable(url, "invalid host or port") from None
    if not parts.path.strip("/"):
        raise _unusable(url, "no database name")
    secrets = {password, unquote(password)} - {""}
    return Location(
        url=f"postgresql+psycopg://{remainder}",
        secrets=tuple(sorted(secrets, key=len, reverse=True)),
    )


def _unusable(url: str, cause: str) -> UsageProblem:
    return UsageProblem(f"--registry: {_redacted(url)!r}: {cause}; allowed: {_ALLOWED}")


def _redacted(url: str) -> str:
    """Redact `url` up to the last @, since the end of a password is ambiguous."""
    credentials, at_sign, address = redact(url).rpartition("@")
    scheme, separator, _ = credentials.rpartition("://")
    return f"{scheme}{separator}{HIDDEN if at_sign else ''}{at_sign}{address}"


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


def is_expected(url: str, results_dir: Path) -> bool:
    """Whether a registry is expected: requested, or the default file exists."""
    return url != NONE and (bool(url) or (results_dir / FILE).exists())


@contextmanager
def connect(url: str, results_dir: Path) -> Iterator[Connection]:
    """Open the registry at `url` for a ``with`` block, and store what it lacks; never raises.

    A missing default file is not created: then there is no registry.
    """
    if not is_expected(url, results_dir):
        yield Connection()
        return
    from gpubench_plugin.results.registry.registry import Registry

    try:
        registry = Registry.open(url, results_dir, create=False)
    except RegistryError as error:
        yield Connection(error=str(error))
        return
    with registry:
        try:
            left = registry.ingest_all(limit_s=_CATCH_UP_S).left
            note = f"the registry still lacks {left} runs; 'gpubench db ingest' stores them"
            notes = (note,) if left else ()
        except RegistryError as error:  # such as a file that is read-only
            notes = (f"the latest runs may be missing: {error}",)
        yield Connection(registry=registry, notes=notes)


def store_run(
    url: str, results_dir: Path, directory: RunDirectory, *, timeout_s: float = TIMEOUT_S
) -> str | None:
    """Store the run in `directory`, and what the registry lacks besides; never raises.

    Returns:
        None if stored or disabled (`url` is ``none``), else one line for the user with the reason.
    """
    if url == NONE:
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
