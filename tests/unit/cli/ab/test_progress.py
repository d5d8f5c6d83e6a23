"""What is shown while one waits."""

from __future__ import annotations

import io

from gpubench_plugin.cli.ab.progress import LaunchStatus, Progress


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_a_log_gets_a_line_per_launch() -> None:
    """Plain lines with the number of the launch and the time that is left, nothing that steers."""
    stream = io.StringIO()
    progress = Progress(stream)
    progress.launch(LaunchStatus(pair=0, pairs=15, side="base", launch=1, launches=32))
    progress.launch(
        LaunchStatus(
            pair=2, pairs=15, side="head", launch=5, launches=32, benchmarks=1, left_s=300.0
        )
    )
    progress.launch(
        LaunchStatus(
            pair=6, pairs=9, side="base", launch=14, launches=34, left_s=9.0, expected_s=4.0
        )
    )
    progress.launch(
        LaunchStatus(pair=0, pairs=15, side="base", launch=1, launches=32, is_repeat=True)
    )
    progress.clear()
    left = "at most 9 s left, about 4 s expected"
    assert stream.getvalue().splitlines() == [
        "gpubench ab: launch 1 of 32, warm-up pair, base",
        "gpubench ab: launch 5 of 32, pair 2 of at most 15, head, 1 benchmark, at most 5 min left",
        f"gpubench ab: launch 14 of 34, pair 6 of at most 9, base, {left}",
        "gpubench ab: launch 1 of 32, warm-up pair (repeated), base",
    ]


def test_a_terminal_has_one_line_that_is_rewritten() -> None:
    """It is taken away before something that stays, in which controls are shown as escapes."""
    stream = Terminal()
    progress = Progress(stream)
    progress.launch(LaunchStatus(pair=1, pairs=5, side="base", launch=3, launches=12))
    progress.launch(LaunchStatus(pair=1, pairs=5, side="head", launch=4, launches=12))
    progress.message("it failed:", ["\x1b[2Jred"])
    shown = stream.getvalue()
    assert shown.count("\x1b[K") == 2
    assert shown.endswith("\x1b[Jgpubench ab: it failed:\n    \\x1b[2Jred\n")
