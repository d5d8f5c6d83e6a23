"""What ranks print, passed on by whole lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubench_plugin.launchers.output import LogForwarder

if TYPE_CHECKING:
    from pathlib import Path


def test_whole_lines_are_passed_on_with_their_rank(tmp_path: Path) -> None:
    """Each line once, from where each rank began; the rest when it is whole, or at the end."""
    logs = {0: tmp_path / "0", 1: tmp_path / "1"}
    logs[0].write_bytes(b"of an earlier gang\n")
    logs[1].touch()
    written: list[str] = []
    output = LogForwarder(written.append)
    assert output() > 0, "it may be asked before any gang has started"
    output.follow(logs)

    with logs[0].open("ab") as log:
        log.write(b"one\ntwo\nthr")
    logs[1].write_bytes(b"\xff\n")
    output()
    assert written == ["[rank 0] one\n", "[rank 0] two\n", "[rank 1] �\n"]

    written.clear()
    with logs[0].open("ab") as log:
        log.write(b"ee\n")
    output()
    assert written == ["[rank 0] three\n"]

    written.clear()
    with logs[0].open("ab") as log:
        log.write(b"four\nno end")
    output.finish()
    output.finish()
    assert output() > 0
    assert written == ["[rank 0] four\n", "[rank 0] no end\n"]
