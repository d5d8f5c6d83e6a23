"""NCCL's flight recorder, played by a thread: it listens on a pipe and writes a file."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from gpubench_plugin.launchers.gang.processes import save_flights

if TYPE_CHECKING:
    from gpubench_plugin.launchers.gang.protocol import JoinInfo


def test_ranks_are_asked_for_their_records_and_these_are_kept(
    invitation: JoinInfo, tmp_path: Path
) -> None:
    """A word on the pipe, a file in return, copied to where the run is."""
    pipe = Path(f"{invitation.pipe_prefix}0.pipe")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR)  # with a writer of its own it waits for another one's word
    asked = []

    def play() -> None:
        asked.append(os.read(reader, 10))
        Path(f"{invitation.dump_prefix}0").write_bytes(b"what rank 0 was in")

    rank = threading.Thread(target=play)
    rank.start()

    kept = save_flights(invitation, tmp_path)

    rank.join(timeout=30)
    os.close(reader)
    assert asked == [b"1\n"]
    assert kept == [tmp_path / "flight-recorder-0"]
    assert kept[0].read_bytes() == b"what rank 0 was in"


def test_without_pipes_nothing_is_waited_for(invitation: JoinInfo, tmp_path: Path) -> None:
    """A gang on gloo has no recorder; what one wrote by itself is kept all the same."""
    assert save_flights(invitation, tmp_path) == []

    Path(f"{invitation.dump_prefix}1").write_bytes(b"written on a timeout")
    assert save_flights(invitation, tmp_path) == [tmp_path / "flight-recorder-1"]
