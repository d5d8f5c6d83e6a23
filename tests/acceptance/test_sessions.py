"""Forked sessions end as sessions of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sessions import TookTooLongError, preloaded

if TYPE_CHECKING:
    from pathlib import Path

SILENT = ("pytest", "-q", "-p", "no:cacheprovider", "--strict-config")


@pytest.mark.parametrize(
    ("body", "code"),
    [("pass", 0), ("assert False", 1), ("os.kill(os.getpid(), 9)", -9)],
)
def test_a_session_has_its_own_folder_variables_and_end(
    tmp_path: Path, body: str, code: int
) -> None:
    """A session is told its variables only, and its exit code or signal is what it ended with."""
    (tmp_path / "test_it.py").write_text(
        "import os, pathlib\n"
        "def test_it():\n"
        "    told = {name for name in os.environ if not name.startswith('PYTEST')}\n"
        "    assert told == {'MINE'} and os.environ.pop('MINE') == 'yes'\n"
        "    pathlib.Path('seen').touch()\n"
        f"    {body}\n"
    )
    ended = preloaded().run(SILENT, tmp_path, {"MINE": "yes"}, within_s=60)
    assert ended[0] == code, ended
    assert (tmp_path / "seen").exists()


def test_a_session_that_does_not_end_is_killed_with_its_stacks(tmp_path: Path) -> None:
    """A test that hangs is known by its name in the stacks, and the next session runs."""
    (tmp_path / "test_it.py").write_text(
        "import time\ndef test_that_hangs():\n    while True: time.sleep(0.1)\n"
    )
    with pytest.raises(TookTooLongError, match="test_that_hangs"):
        preloaded().run(SILENT, tmp_path, {}, within_s=4)
    assert preloaded().run(("pytest", "--version"), tmp_path, {}, within_s=60)[0] == 0
