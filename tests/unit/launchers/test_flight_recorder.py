"""NCCL's flight recorder, played by a thread: it listens on a pipe and writes a file."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from gpubench_plugin.launchers.processes import invitation_variables, save_flights

if TYPE_CHECKING:
    from gpubench_plugin.launchers.link import Invitation


def test_ranks_are_asked_for_their_records_and_these_are_kept(
    invitation: Invitation, tmp_path: Path
) -> None:
    """A word on the pipe, a file in return, copied to where the run is."""
    variables = invitation_variables(invitation)
    pipe = Path(f"{variables['TORCH_NCCL_DEBUG_INFO_PIPE_FILE']}0.pipe")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR)  # with a writer of its own it waits for another one's word
    asked = []

    def play() -> None:
        asked.append(os.read(reader, 10))
        Path(f"{variables['TORCH_FR_DUMP_TEMP_FILE']}0").write_bytes(b"what rank 0 was in")

    rank = threading.Thread(target=play)
    rank.start()

    kept = save_flights(invitation.folder, tmp_path)

    rank.join(timeout=30)
    os.close(reader)
    assert asked == [b"1\n"]
    assert kept == [tmp_path / "flight-recorder-0"]
    assert kept[0].read_bytes() == b"what rank 0 was in"


def test_without_pipes_nothing_is_waited_for(invitation: Invitation, tmp_path: Path) -> None:
    """A gang on gloo has no recorder; what one wrote by itself is kept all the same."""
    assert save_flights(invitation.folder, tmp_path) == []

    (invitation.folder / "flight-1").write_bytes(b"written on a timeout")
    assert save_flights(invitation.folder, tmp_path) == [tmp_path / "flight-recorder-1"]
