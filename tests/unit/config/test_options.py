"""Options that are probably misspelt ones of this plugin."""

from __future__ import annotations

import pytest

from gpubench_plugin.config.options import suggested_option


@pytest.mark.parametrize(
    ("arg", "option"),
    [
        ("--precison=amp", "--precision=amp"),
        ("--presicion=amp", "--precision=amp"),
        ("--Device", "--device"),
        ("--devize=cpu", "--device=cpu"),
        ("--worldsize=2", "--world-size=2"),
        ("--world_size=2", "--world-size=2"),
        ("--trainin.batch_size=1", "--training.batch_size=1"),
        ("--gpubench-presett=tiny", "--gpubench-preset=tiny"),
        ("--gpubench_preset=tiny", "--gpubench-preset=tiny"),
    ],
)
def test_a_slip_is_answered_with_the_option(arg: str, option: str) -> None:
    """Case, separators, and a letter or two, also in the section of a key; the value stays."""
    assert suggested_option(arg) == option


@pytest.mark.parametrize(
    "arg",
    [
        *("--precision=amp", "--training.steps=3", "--gpubench-device=cpu", "test_it.py", "-x"),
        *("--cov=src", "--timeout=3", "--server.a=1", "--", "--=", "--.x"),
    ],
)
def test_what_is_right_or_anothers_is_left_alone(arg: str) -> None:
    """A suggestion for a foreign option would mislead."""
    assert suggested_option(arg) == ""
