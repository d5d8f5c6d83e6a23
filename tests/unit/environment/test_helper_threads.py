"""Threads of our own are left out of stacks by who they are, not by what their code is called."""

from __future__ import annotations

import faulthandler
import threading
from typing import TYPE_CHECKING

from gpubench_plugin.environment import helper_threads
from gpubench_plugin.environment.helper_threads import (
    HelperThread,
    helper_idents,
    record_in,
    recorded_idents,
    without_helpers,
)

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def wait_in_user_code(arrival: threading.Barrier, release: threading.Event) -> None:
    arrival.wait(60)
    release.wait(60)


def test_a_helper_is_left_out_and_the_same_function_of_a_user_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both wait in the same function; the file says which of them is ours."""
    monkeypatch.setattr(helper_threads, "_descriptors", [])
    arrival, release = threading.Barrier(4), threading.Event()
    early = HelperThread("early", wait_in_user_code, arrival, release)
    early.start()
    with (tmp_path / "stacks").open("a+") as file:
        record_in(file.fileno())
        late = HelperThread("late", wait_in_user_code, arrival, release)
        users = threading.Thread(target=wait_in_user_code, args=(arrival, release))
        late.start()
        users.start()
        arrival.wait(60)
        faulthandler.dump_traceback(file, all_threads=True)
        release.set()
        for thread in (early, late, users):
            thread.join()
        text = (tmp_path / "stacks").read_text()
    at_the_dump = text[: text.index("ends")].rpartition("\n")[0] + "\n"
    idents = recorded_idents(at_the_dump)
    assert idents == {early.ident, late.ident}
    shown = without_helpers(at_the_dump, idents)
    assert shown.count("in wait_in_user_code") == 1
    assert f"{users.ident:x}" in shown
    assert "helper thread" not in shown


def test_the_number_of_a_helper_that_is_over_may_be_a_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it has ended, a thread with its number is shown again."""
    monkeypatch.setattr(helper_threads, "_descriptors", [])
    with (tmp_path / "stacks").open("a+") as file:
        record_in(file.fileno())
        thread = HelperThread("short", lambda: None)
        thread.start()
        thread.join()
    assert thread.ident not in helper_idents()
    assert thread.ident not in recorded_idents((tmp_path / "stacks").read_text())
    assert f"{thread.ident:#x} begins" in (tmp_path / "stacks").read_text()


def test_a_file_that_cannot_be_written_ends_no_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a helper does is more important than that it is left out."""
    monkeypatch.setattr(helper_threads, "_descriptors", [10_000])
    done = threading.Event()
    HelperThread("late", done.set).start()
    assert done.wait(30)
