"""A folder that only its owner may look into, and that does not stay behind."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gpubench_plugin.core.errors import GangError
from gpubench_plugin.environment.scratch import private_folder
from gpubench_plugin.launchers.gang.protocol import JoinInfo

ABANDON = """
import os, signal
from gpubench_plugin.environment.scratch import private_folder
print(private_folder().path, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_folder_is_for_its_owner_alone_and_goes_with_all_in_it() -> None:
    """Mode 0700, an open file less once it is removed; a second time does nothing."""
    before = set(Path("/proc/self/fd").iterdir())
    folder = private_folder()
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    (folder.path / "file").touch()

    folder.remove()
    folder.remove()

    assert not folder.path.exists()
    assert set(Path("/proc/self/fd").iterdir()) == before


@pytest.mark.slow
def test_folder_of_a_killed_owner_is_removed_by_the_next_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Those of living owners, and what only looks like one, stay; the run's log says it."""
    temporary = Path(os.path.realpath(tempfile.mkdtemp(prefix="of-a-test-")))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    strangers = {temporary / f"gpubench-{name}" for name in ("notes", "gang-shared", "gang-mine")}
    for stranger in strangers:
        stranger.mkdir(mode=0o700 if stranger.name == "gpubench-gang-mine" else 0o755)
        (stranger / "lock").touch()  # which once was enough
    living = private_folder()
    killed = subprocess.run(
        [sys.executable, "-c", ABANDON],
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
    )
    abandoned = Path(killed.stdout.strip())
    assert abandoned.is_relative_to(temporary)
    assert abandoned.exists()

    with caplog.at_level("INFO", "gpubench"):
        following = private_folder()

    assert caplog.messages == [f"removed {abandoned}, left over by a killed session"]
    assert set(temporary.iterdir()) == {*strangers, living.path, following.path}
    living.remove()
    following.remove()
    shutil.rmtree(temporary)


def test_socket_fits_where_the_folder_for_temporary_files_has_a_long_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A unix socket's path is limited; then the folder is made in /tmp."""
    deep = tmp_path / ("d" * 90)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))

    folder = private_folder()

    assert folder.path.parent == Path("/tmp")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(JoinInfo(folder=folder.path, token="").socket))
    folder.remove()


def test_folder_that_cannot_be_made_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the place."""
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    with pytest.raises(GangError, match="/nowhere/gpubench-gang-"):
        private_folder()
