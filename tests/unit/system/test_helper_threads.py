"""Threads of our own are left out of stacks."""

from __future__ import annotations

import faulthandler
import threading
from pathlib import Path

from gpubench_plugin.system.helper_threads import HelperThread, without_helpers


def wait_in_user_code(arrival: threading.Barrier, release: threading.Event) -> None:
    arrival.wait(60)
    release.wait(60)


def test_a_helper_is_left_out_and_the_same_function_of_a_user_is_shown(tmp_path: Path) -> None:
    """By who they are, not by what their code is called."""
    arrival, release = threading.Barrier(3), threading.Event()
    helper = HelperThread("ours", wait_in_user_code, arrival, release)
    users = threading.Thread(target=wait_in_user_code, args=(arrival, release))
    for thread in (helper, users):
        thread.start()
    arrival.wait(60)
    with (tmp_path / "stacks").open("w+") as file:
        faulthandler.dump_traceback(file, all_threads=True)
    release.set()
    for thread in (helper, users):
        thread.join()

    stacks = (tmp_path / "stacks").read_text()
    shown = without_helpers(stacks)
    assert stacks.count("in wait_in_user_code") == 2
    assert shown.count("in wait_in_user_code") == 1
    assert f"{users.ident:x}" in shown
