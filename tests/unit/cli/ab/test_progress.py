"""What is shown while one waits."""

from __future__ import annotations

import io

import pytest

from gpubench_plugin.cli.ab import Progress, duration


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_a_log_gets_a_line_per_launch() -> None:
    """Plain lines, without anything that steers a terminal."""
    stream = io.StringIO()
    progress = Progress(stream)
    progress.launch(pair=0, pairs=15, side="base", benchmarks=None, left_s=None)
    progress.launch(pair=2, pairs=15, side="head", benchmarks=1, left_s=300.0)
    progress.clear()
    assert stream.getvalue().splitlines() == [
        "gpubench ab: rehearsal, base",
        "gpubench ab: pair 2 of at most 15, head, 1 benchmark, at most 5 min left",
    ]


def test_a_terminal_has_one_line_that_is_rewritten() -> None:
    """It is taken away before something that stays, in which controls are shown as escapes."""
    stream = Terminal()
    progress = Progress(stream)
    progress.launch(pair=1, pairs=5, side="base", benchmarks=3, left_s=None)
    progress.launch(pair=1, pairs=5, side="head", benchmarks=3, left_s=None)
    progress.say("it failed:", ["\x1b[2Jred"])
    shown = stream.getvalue()
    assert shown.count("\r\x1b[K") == 3
    assert shown.endswith("gpubench ab: it failed:\n    \\x1b[2Jred\n")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.1, "1 s"), (89, "89 s"), (300, "5 min"), (4800, "80 min"), (6000, "1 h 40 min")],
)
def test_durations_read_like_a_clock(seconds: float, text: str) -> None:
    """Seconds, then minutes, then hours."""
    assert duration(seconds) == text
