"""Forked sessions end as sessions of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.sessions import TORCHRUN, TookTooLongError, preloaded

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


@pytest.mark.parametrize(
    ("launcher", "within_s"),
    [((), 5), ((TORCHRUN, "--nproc-per-node=1", "--standalone", "-m"), 15)],
)
def test_a_session_that_does_not_end_is_killed_with_its_stacks(
    tmp_path: Path, launcher: tuple[str, ...], within_s: float
) -> None:
    """A test that hangs is known by its name in the stacks, no rank of it stays; the next runs."""
    (tmp_path / "test_it.py").write_text(
        "import os, pathlib, time\n"
        "def test_that_hangs():\n"
        "    pathlib.Path('process').write_text(str(os.getpid()))\n"
        "    while True: time.sleep(0.1)\n"
    )
    with pytest.raises(TookTooLongError, match="test_that_hangs"):
        preloaded().run((*launcher, *SILENT), tmp_path, {}, within_s)
    assert not Path("/proc", (tmp_path / "process").read_text(), "fd/1").exists()
    assert preloaded().run(("pytest", "--version"), tmp_path, {}, within_s=60)[0] == 0


def test_what_is_not_text_costs_no_later_session_its_code(tmp_path: Path) -> None:
    """Bytes of no encoding are replaced, and the next session has its own exit code."""
    (tmp_path / "test_it.py").write_text("import os\nos.write(1, b'\\xff')\ndef test_it(): ...\n")
    code, out, _ = preloaded().run((*SILENT, "-s"), tmp_path, {}, within_s=60)
    assert code == 0
    assert "\ufffd" in out
    assert preloaded().run(("pytest", "--no-such"), tmp_path, {}, within_s=60)[0] == 4
