"""Where a registry's database is, and how it may be named without its password."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from gpubench_plugin.environment import HIDDEN, redacted
from gpubench_plugin.errors import RegistryError, UsageProblem, nearest

NONE: Final = "none"
"""What is given instead of a URL where no registry is wanted."""

FILE: Final = "registry.sqlite"
"""The default registry's name in the folder of the runs."""

PATIENCE_S: Final = 30.0
"""How long to wait for a database that others are writing, or that does not answer."""

_SCHEMES: Final = {
    "sqlite": "sqlite",
    "postgresql": "postgresql",
    "postgresql+psycopg": "postgresql",
}
_WHERE: Final = frozenset({"host", "hostaddr", "port", "dbname"})
"""Parameters of a URL that say which server and database it is."""

_ALLOWED: Final = "sqlite:///registry.sqlite, postgresql+psycopg://user@host/database, or none"


@dataclass(frozen=True, kw_only=True)
class Location:
    """A database: `file` is absolute and there for SQLite only, `url` is the whole URL.

    `secrets` are the passwords in it, as written and decoded.
    """

    kind: Literal["sqlite", "postgresql"]
    url: str = field(repr=False)
    file: Path | None = None
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @property
    def shown(self) -> str:
        """What messages call it: without credentials."""
        return str(self.file) if self.file else redacted(self.url)

    @property
    def key(self) -> str:
        """A short text that is this database's own, the same whatever the password."""
        parts = urlsplit(self.url)
        asked = [(k, v) for k, v in parse_qsl(parts.query) if k in _WHERE]
        named = f"{parts.hostname}:{parts.port}{parts.path} {sorted(asked)}"
        return sha256(str(self.file or named).encode()).hexdigest()[:12]

    def scrubbed(self, text: str) -> str:
        """`text`, which a library wrote, without what is secret in the URL."""
        for secret in self.secrets:
            text = text.replace(secret, HIDDEN)
        return redacted(text)


def location(url: str, results_dir: Path, *, here: Path | None = None) -> Location:
    """The database that `url` names; empty for the SQLite file in `results_dir`.

    A relative file is seen from `here`, the working folder if that is None.

    Raises:
        UsageProblem: it is no URL of a database that can be used; the message names what can.
        RegistryError: it is ``none``.
    """
    if url == NONE:
        raise RegistryError("there is no registry: it was switched off with --registry=none")
    if not url:
        return _sqlite((results_dir / FILE).absolute())
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in _SCHEMES:
        raise _unusable(url, f"no database of that kind{nearest(scheme, _SCHEMES)}")
    if _SCHEMES[scheme] == "sqlite":
        return _sqlite_file(url, rest, here or Path.cwd())
    return _postgresql(url, rest)


def absolute(url: str, *, here: Path) -> str:
    """`url`, checked, and meaning the same from whatever folder it is used later.

    Raises:
        UsageProblem: as :func:`location`.
    """
    if url in {"", NONE}:
        return url
    found = location(url, here, here=here)
    return f"sqlite:///{found.file}" if found.file else url


def _sqlite_file(url: str, rest: str, here: Path) -> Location:
    path = rest.removeprefix("/")
    if not rest.startswith("/") or not path or path == ":memory:":
        raise _unusable(url, "it names no file")
    if "\0" in path or "?" in path:
        raise _unusable(url, "a file's name only; it takes no parameters")
    return _sqlite(here / path)


def _sqlite(file: Path) -> Location:
    return Location(kind="sqlite", url=f"sqlite:///{file}", file=file)


def _postgresql(url: str, rest: str) -> Location:
    if rest.count("@") > 1:
        raise _unusable(url, "an @ in a user's name, a password or a parameter: write %40")
    try:
        parts = urlsplit(f"postgresql://{rest}")
        port, password = parts.port, parts.password or ""
    except ValueError:  # whose message may hold a part of the password
        raise _unusable(url, "its host or port cannot be read") from None
    if port == 0 or not parts.path.strip("/"):
        raise _unusable(url, "it names no database" if port != 0 else "its port is 0")
    secrets = {password, unquote(password)} - {""}
    return Location(
        kind="postgresql",
        url=f"postgresql+psycopg://{rest}",
        secrets=tuple(sorted(secrets, key=len, reverse=True)),
    )


def _unusable(url: str, why: str) -> UsageProblem:
    return UsageProblem(f"--registry: {_shown(url)!r}: {why}; allowed: {_ALLOWED}")


def _shown(url: str) -> str:
    """`url` with nothing of what stands before its last @: nobody knows where a password ends."""
    scheme, separator, rest = redacted(url).partition("://")
    hidden, at, place = rest.rpartition("@")
    return f"{scheme}{separator}{HIDDEN if hidden else ''}{at}{place}"
