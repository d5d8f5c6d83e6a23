"""Tests of what is never recorded."""

from __future__ import annotations

import pytest

from gpubench_plugin.environment.redaction import (
    is_secret_name,
    recorded_variables,
    redact,
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
        ("https://host/x?token=abc&page=2", "https://host/x?token=***&page=2"),
        ("git@github.com:org/repo.git", "git@github.com:org/repo.git"),
        ("https://host/path", "https://host/path"),
        ("use ghp_abcdefghijklmnop1234 here", "use *** here"),
        ("AKIAABCDEFGHIJKLMNOP", "***"),
    ],
)
def test_text_is_redacted(text: str, expected: str) -> None:
    """Credentials in URLs and tokens of well-known form are replaced, all else stays."""
    assert redact(text) == expected


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
