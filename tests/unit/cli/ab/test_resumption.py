"""What a comparison that goes on may be asked anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpubench_plugin.cli import main
from gpubench_plugin.cli.ab.comparison import new_state
from gpubench_plugin.cli.ab.request import Request, merge_resumed
from gpubench_plugin.core.errors import UsageProblem

BEFORE = Request(
    here=Path("/repo"),
    base="main",
    head_python="new/python",
    limits={"mfu": "3%"},
    launch_timeout_s=60.0,
    pairs=5,
    arguments=("bench",),
)


def again(before: Request = BEFORE, **given: Any) -> Request:
    return merge_resumed(before, given, "--resume=DIR")


def test_what_is_not_given_is_as_before() -> None:
    """Given again, it changes nothing; pairs and time may be others, each by itself."""
    assert again() == BEFORE
    same = {"base": "main", "limits": {"mfu": "3%"}, "arguments": ("bench",)}
    assert again(**same) == BEFORE
    assert again(pairs=10) == replace(BEFORE, pairs=10)
    assert again(until_decided=True, time_s=9.0) == replace(BEFORE, until_decided=True, time_s=9.0)
    assert again(launch_timeout_s=9.0) == replace(BEFORE, launch_timeout_s=9.0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"base": "v1"}, "--base: 'v1', but it was 'main'"),
        ({"head": "x"}, "--head: 'x', but it was not given"),
        ({"head_python": "py"}, "--head-python: 'py', but it was 'new/python'"),
        ({"limits": {"mfu": "9%"}}, "--limit: mfu=9%, but it was mfu=3%"),
        ({"allow_incomparable": True}, "--allow-incomparable: given, but it was not given"),
        ({"arguments": ("-x",)}, "the arguments of pytest: -x, but it was bench"),
    ],
)
def test_what_contradicts_it_is_refused_by_name(given: dict[str, Any], said: str) -> None:
    """Nothing that is typed is silently ignored."""
    with pytest.raises(UsageProblem, match=r"^--resume=DIR: ") as problem:
        again(**given)
    assert said in str(problem.value)


def test_a_time_holds_for_one_go() -> None:
    """One that has no more of it must not end the next one at once."""
    assert again(replace(BEFORE, time_s=60.0)) == BEFORE


def test_unchanged_is_never_called_earlier_than_before() -> None:
    """What was not called unchanged by few pairs would be, knowing that it looks so; later may."""
    assert again(unchanged_from=15).unchanged_from == 15
    with pytest.raises(UsageProblem, match="must not be below 10, the value the comparison"):
        again(unchanged_from=5)


def test_all_that_contradicts_is_in_one_message() -> None:
    """One does not find them one by one."""
    with pytest.raises(UsageProblem, match=r"--base: .*--head: "):
        again(base="v1", head="x")


def test_arguments_with_secrets_are_given_again() -> None:
    """They were not recorded; those that are given are used as they are."""
    secret = replace(BEFORE, arguments=("--api-key=hunter2",))
    recorded = Request.from_json(secret.to_json())
    with pytest.raises(UsageProblem, match="repeat the arguments"):
        again(recorded)
    assert again(recorded, arguments=secret.arguments) == secret


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("--limit=mfu=9%", "--limit: mfu=9%, but it was none"),
        ("--head=main", "--head: 'main', but it was not given"),
        ("--head-python=python3", "--head-python: 'python3', but it was not given"),
        ("--allow-incomparable", "--allow-incomparable: given"),
        ("--limits-from=head", "--limits-from: 'head', but it was 'base'"),
        ("--limits-from=haed", "--limits-from: unknown 'haed' (did you mean 'head'?)"),
        ("--results-dir=elsewhere", "--results-dir=elsewhere: cannot be combined with --resume"),
    ],
)
def test_the_command_refuses_it_before_anything_is_launched(
    repo: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], given: str, said: str
) -> None:
    """Bad usage, said in one line."""
    state = new_state(tmp_path / "results", Request(here=repo.path, base="main"))
    assert main.main(["ab", f"--resume={state.folder}", given]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1
