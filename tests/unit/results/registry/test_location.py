"""Tests of where a registry's database is, and how it is named."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import pytest

from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.environment.redaction import redacted_command
from gpubench_plugin.results.registry.connection import store_run
from gpubench_plugin.results.registry.locations import absolute_url, location
from gpubench_plugin.results.run_directory import RunDirectory

RESULTS = Path("/somewhere/results")
ALLOWED = "sqlite:///registry.sqlite"


def test_default_is_a_file_beside_the_runs() -> None:
    """An empty URL means ``registry.sqlite`` in the folder of the runs."""
    parsed = location("", RESULTS)
    assert (parsed.file, parsed.shown_name) == (
        RESULTS / "registry.sqlite",
        "/somewhere/results/registry.sqlite",
    )


def test_relative_file_is_seen_from_here(tmp_path: Path) -> None:
    """A relative file means the same after a benchmark has changed folders."""
    assert location("sqlite:///a/b.db", RESULTS, cwd=tmp_path).file == tmp_path / "a" / "b.db"
    assert absolute_url("sqlite:///a%b.db", cwd=tmp_path) == f"sqlite:///{tmp_path}/a%b.db"
    assert location("sqlite:////abs.db", RESULTS).file == Path("/abs.db")
    for url in ("", "none", "postgresql+psycopg://me:pw@host/db"):
        assert absolute_url(url, cwd=tmp_path) == url


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+psycopg"])
def test_server(scheme: str) -> None:
    """Both ways to write PostgreSQL mean the same driver; what is shown has no password."""
    parsed = location(f"{scheme}://me:s%40crt@host:5433/db?sslmode=require", RESULTS)
    assert parsed.file is None
    assert parsed.url == "postgresql+psycopg://me:s%40crt@host:5433/db?sslmode=require"
    assert parsed.shown_name == "postgresql+psycopg://***@host:5433/db?sslmode=require"
    assert parsed.redact("s@crt and s%40crt") == "*** and ***"
    assert "crt" not in repr(parsed)


ODD = (
    *(
        "hun ter2",
        "hun#ter2",
        "hun?ter2",
        "hun@ter2",
        "hun/ter2",
        "hun:ter2",
        "hun;ter2",
        "hun&ter2",
    ),
    *("hun\tter2", "hun\nter2", "hun\u00a0ter2", "h\u00fcn-ter2", "hun\u4e2dter2", "hun'ter2"),
    *('hun"ter2', "hun[ter2", "hun%ter2", "hun%20ter2", "hun%40ter2", "hun+ter2", "hun=ter2"),
    *("hun*ter2", "hun\\ter2", "@hunter2", "hunter2@", "hunter2/"),
)
"""Passwords, valid or not; each has a beginning and an end that no other word here contains."""


@pytest.mark.parametrize("password", ODD)
@pytest.mark.parametrize(
    "form",
    [
        "postgresql+psycopg://bob:{}@127.0.0.1:1/db",
        "postgresql://127.0.0.1:1/db?user=bob&password={}",
        "mysql://bob:{}@127.0.0.1:1/db",
        "bob:{}@127.0.0.1:1/db",
        "postgresql:/bob:{}@127.0.0.1:1/db",
        "sqlite:///registry.sqlite?password={}",
        "postgresql://bob:{}",
    ],
)
def test_no_part_of_an_odd_password_is_shown(form: str, password: str, tmp_path: Path) -> None:
    """A URL that hides where its password ends is refused; of others every message is clean."""
    url = form.format(password)
    if "@" in password and "@" not in form and "?" not in form:
        return  # that is a host
    messages = [*redacted_command([f"--registry={url}"])]
    try:
        parsed = location(url, RESULTS)
    except UsageProblem as problem:
        messages = [str(problem)]  # then no session records the command
    else:
        messages += [parsed.shown_name, repr(parsed), parsed.redact(f"no {unquote(url)!r}, {url}")]
        directory = RunDirectory(path=tmp_path / "default" / "run")
        messages.append(str(store_run(url, tmp_path, directory)))
    shown = " ".join(messages).replace(ALLOWED, "")
    assert not any(part in shown for part in ("hun", "ter2", "h\u00fcn", "\u4e2d")), shown


def test_an_odd_password_is_refused_with_what_to_write() -> None:
    """It is to be percent-encoded, and then it may be anything."""
    with pytest.raises(UsageProblem, match="written as %40"):
        location("postgresql://bob:correct horse@host/db", RESULTS)
    assert location("postgresql://bob:correct%20horse%40@host/db", RESULTS).secrets[1] == (
        "correct horse@"
    )


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("mysql://me:hunter2@host/db", "unsupported database"),
        ("postgres://me:hunter2@host/db", "did you mean 'postgresql'"),
        ("postgresql+psycopg2://me:hunter2@host/db", "did you mean 'postgresql+psycopg'"),
        ("results/registry.sqlite", "unsupported database"),
        ("sqlite://", "no file name"),
        ("sqlite:///", "no file name"),
        ("sqlite:///:memory:", "no file name"),
        ("sqlite://host/file", "no file name"),
        ("sqlite:///file?mode=ro", "without parameters"),
        ("postgresql://me:hunter2@host", "no database name"),
        ("postgresql://me:hunter2@host:hunter2/db", "port"),
        ("postgresql://me:hunter2@[host/db", "invalid host"),
    ],
)
def test_unusable_url(url: str, reason: str) -> None:
    """The message names what is allowed and, without its password, what was given."""
    with pytest.raises(UsageProblem) as problem:
        location(url, RESULTS)
    message = str(problem.value)
    assert message.startswith("--registry: ")
    assert reason in message
    assert "allowed: sqlite:///" in message
    assert "hunter2@" not in message
    assert "me:" not in message
