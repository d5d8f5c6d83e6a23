"""Tests of what is never recorded."""

from __future__ import annotations

import pytest

from gpubench_plugin.environment.redaction import (
    is_secret_name,
    recorded_variables,
    redact,
    redact_facts,
    redacted_command,
)


def test_known_variables_are_recorded() -> None:
    """Variables that change how torch computes are recorded, in order."""
    environ = {"OMP_NUM_THREADS": "2", "CUDA_VISIBLE_DEVICES": "0,1", "NCCL_ALGO": "Ring"}
    assert list(recorded_variables(environ).items()) == sorted(environ.items())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HOME", "/home/someone"),
        ("AWS_SECRET_ACCESS_KEY", "abc"),
        ("HF_TOKEN", "abc"),
        ("TORCH_API_KEY", "abc"),
        ("NCCL_PASSWORD", "abc"),
        ("PYTORCH_AUTH", "abc"),
        ("TORCH_INDEX", "https://someone:hunter2@host/simple"),
        ("TORCH_HUB", "hf_abcdefghijklmnopqrstuvwxyz"),
        ("MY_OMP_NUM_THREADS", "1"),
    ],
)
def test_other_variables_are_not(name: str, value: str) -> None:
    """A variable that is unknown, sounds like a secret or holds one is not recorded."""
    assert recorded_variables({name: value}) == {}


@pytest.mark.parametrize(
    "name", ["token", "API-KEY", "apikey", "data.access_token", "DB_PASSWD", "client_secret_id"]
)
def test_names_of_secrets(name: str) -> None:
    """Names that a secret usually has are known, however they are written."""
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["training.batch_size", "max_tokens", "keyboard", "author"])
def test_harmless_names(name: str) -> None:
    """Names that only resemble one are harmless."""
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://me:secret@host/x.git", "https://***@host/x.git"),
        ("https://ghp_token@host/x.git", "https://***@host/x.git"),
        ("https://me:p@ss@host/x", "https://***@host/x"),
        ("https://me:pa/ss@host/x", "https://***@host/x"),
        ("https://me:p@s/s@host/x", "https://***@host/x"),
        ("redis://:pa/ss@cache/0", "redis://***@cache/0"),
        ("postgresql://bob:correct horse@h/db", "postgresql://***@h/db"),
        ("postgresql://bob:p@ss w/rd#?@h/db", "postgresql://***@h/db"),
        ("cannot reach s3://me:two words@h/b, retry", "cannot reach s3://***@h/b, retry"),
        ("the https://host:8080 is down, ask me@x.org", None),
        ("https://host/x?api_key=a;b#c&page=2", "https://host/x?api_key=***&page=2"),
        ("https://host/x?token_count=512", "https://host/x?token_count=512"),
        ("host=h password='a b' user=me", "host=h password=*** user=me"),
        ("no password here: token_count, key=value, lr=1e-3", None),
        ("test_x[fp32-4x512-hf_bert_base_uncased-sk-learn-random-forest]", None),
        ("at 5f8a1c9e0b7d4e6f8a1c9e0b7d4e6f8a1c9e0b7d, branch@{upstream}", None),
        ("hf_abcdefghijklmnopqrstuvwxyz and sk-proj-Ab3dEfGhIjKlMnOp", "*** and ***"),
        ("https://host/x?token=abc&page=2", "https://host/x?token=***&page=2"),
        ("git@github.com:org/repo.git", "git@github.com:org/repo.git"),
        ("https://host/path", "https://host/path"),
        ("use ghp_abcdefghijklmnop1234 here", "use *** here"),
        ("AKIAABCDEFGHIJKLMNOP", "***"),
    ],
)
def test_text_is_redacted(text: str, expected: str | None) -> None:
    """Credentials in URLs and tokens of well-known form are replaced, all else (None) stays."""
    shown = redact(text)
    assert shown == (text if expected is None else expected)
    assert redact(shown) == shown


def test_facts_are_redacted_by_their_keys_too() -> None:
    """What a secret key has is hidden whatever it is; a number of an ambiguous one stays."""
    facts = {
        "api_token": "a",
        "secrets": {"a": "b"},
        "token_count": 512,
        "node": {"urls": ["s3://me:pw@h/b", "4x512"], "ok": True, "none": None},
    }
    assert redact_facts(facts) == {
        "api_token": "***",
        "secrets": "***",
        "token_count": 512,
        "node": {"urls": ["s3://***@h/b", "4x512"], "ok": True, "none": None},
    }


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["benchmarks", "-k", "resnet"], ("benchmarks", "-k", "resnet")),
        (["--training.batch_size=64"], ("--training.batch_size=64",)),
        (["--model.num_key_value_heads=8"], ("--model.num_key_value_heads=8",)),
        (["--api-key=12345"], ("--api-key=***",)),
        (["--data.token=abc"], ("--data.token=***",)),
        (["--api-key", "abc", "benchmarks"], ("--api-key", "***", "benchmarks")),
        (["--api-key", "-v"], ("--api-key", "-v")),
        (["--set", "data.password=abc=="], ("--set", "data.password=***")),
        (["--set=data.password=abc"], ("--set=data.password=***",)),
        (["--data.url=s3://me:pw@host/b"], ("--data.url=s3://***@host/b",)),
        (["--registry=postgresql://me:pw@host/b"], ("--registry=postgresql://***@host/b",)),
        (["--registry", "postgresql://me:pw@host/b"], ("--registry", "postgresql://***@host/b")),
        (
            ["--gpubench-registry=postgresql+psycopg://me:p=w/:@host/b?password=pw&x=1"],
            ("--gpubench-registry=postgresql+psycopg://***@host/b?password=***&x=1",),
        ),
    ],
)
def test_command_is_redacted(arguments: list[str], expected: tuple[str, ...]) -> None:
    """Arguments that give a secret are kept without it."""
    assert redacted_command(arguments) == expected
