"""Registry URLs: parsing, and display without passwords."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from gpubench_plugin.core.errors import RegistryError, UsageProblem, suggest
from gpubench_plugin.environment.redaction import HIDDEN, is_secret_name, redact

NONE: Final = "none"
"""Value instead of a URL that disables the registry."""

FILE: Final = "registry.sqlite"
"""File name of the default registry in the results directory."""

TIMEOUT_S: Final = 30.0
"""Timeout of a locked or unresponsive database: long enough for other writers."""

_SERVERS: Final = ("postgresql", "postgresql+psycopg")
_SCHEMES: Final = ("sqlite", *_SERVERS)
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
    if scheme in _SERVERS:
        return _postgresql(url, remainder)
    path = remainder.removeprefix("/")
    if not remainder.startswith("/") or not path or path == ":memory:":
        raise _unusable(url, "no file name")
    if "?" in path:
        raise _unusable(url, "only a file name is allowed, without parameters")
    return _sqlite((cwd or Path.cwd()) / path)


def absolute_url(url: str, *, cwd: Path) -> str:
    """Validate `url` and make its path absolute; raises UsageProblem."""
    if url in {"", NONE}:
        return url
    parsed = location(url, cwd, cwd=cwd)
    return f"sqlite:///{parsed.file}" if parsed.file else url


def is_server(url: str) -> bool:
    """Whether `url` names a database that machines share."""
    return url.partition("://")[0] in _SERVERS


def _sqlite(file: Path) -> Location:
    return Location(url=f"sqlite:///{file}", file=file)


def _postgresql(url: str, remainder: str) -> Location:
    if re.search(r"[\s#\x00-\x1f\x7f]|[@/?](?=.*@)", remainder):
        cause = "user, password and parameters must be percent-encoded: an @ is written as %40"
        raise _unusable(url, cause)
    try:
        parts = urlsplit(f"postgresql://{remainder}")
        _, password = parts.port, parts.password or ""
        keys = parse_qsl(parts.query, True, True) if parts.query else []  # each with a value
    except ValueError:  # its message may contain part of the password
        raise _unusable(url, "invalid host, port or parameter") from None
    if not parts.path.strip("/"):
        raise _unusable(url, "no database name")
    secrets = {password, unquote(password), *(v for k, v in keys if is_secret_name(k))} - {""}
    return Location(
        url=f"postgresql+psycopg://{remainder}",
        secrets=tuple(sorted(secrets, key=len, reverse=True)),
    )


def _unusable(url: str, cause: str) -> UsageProblem:
    """Refusal of `url`, of which nobody knows where a password ends: its scheme is shown."""
    scheme = re.match(r"[\w+.-]+://", url)
    shown = f"{scheme[0]}{HIDDEN}" if scheme else url if re.fullmatch(r"[\w./-]+", url) else HIDDEN
    return UsageProblem(f"--registry: {shown!r}: {cause}; allowed: {_ALLOWED}")
