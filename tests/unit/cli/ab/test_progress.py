"""What is shown while one waits."""

from __future__ import annotations

import io

from gpubench_plugin.cli.ab.runner import Progress


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_a_log_gets_a_line_per_launch() -> None:
    """Plain lines, nothing that steers a terminal."""
    stream = io.StringIO()
    progress = Progress(stream)
    progress.launch("launch 1 of 32")
    progress.launch("launch 2 of 32")
    progress.clear()
    assert stream.getvalue() == "gpubench ab: launch 1 of 32\ngpubench ab: launch 2 of 32\n"


def test_a_terminal_has_one_line_that_is_rewritten() -> None:
    """It is taken away before something that stays, in which controls are shown as escapes."""
    stream = Terminal()
    progress = Progress(stream)
    progress.launch("launch 3 of 12")
    progress.launch("launch 4 of 12")
    progress.message("it failed:", ["\x1b[2Jred"])
    shown = stream.getvalue()
    assert shown.count("\x1b[K") == 2
    assert shown.endswith("\x1b[Jgpubench ab: it failed:\n    \\x1b[2Jred\n")
