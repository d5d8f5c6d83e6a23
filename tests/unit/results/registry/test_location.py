"""Tests of where a registry's database is, and how it is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.results.registry.locations import absolute_url, location

RESULTS = Path("/somewhere/results")


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


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:s3@crt@127.0.0.1:1/db",
        "postgresql://u:s3@c/rt@127.0.0.1:1/db",
        "postgresql://u:s3@c?rt@127.0.0.1:1/db",
        "postgresql://u@127.0.0.1:1/db?password=s3@crt",
        "mysql://u:s3@c?rt@127.0.0.1:1/db",
    ],
)
def test_no_part_of_a_password_with_an_at_sign_is_shown(url: str) -> None:
    """Where it ends is anybody's guess, so the URL is refused."""
    with pytest.raises(UsageProblem) as problem:
        location(url, RESULTS)
    message = str(problem.value).replace("allowed: sqlite:///registry.sqlite", "")
    assert not any(part in message for part in ("s3", "crt", "rt@", "c/rt"))
    assert "written as %40" in message or url.startswith("mysql")


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
