"""Whose number of threads OMP_NUM_THREADS is; the processes are real."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gpubench_plugin.environment.redaction import (
    THREADS_SHARE,
    is_set_by_launcher,
    recorded_variables,
)

RANK = """
import os
from gpubench_plugin.environment.redaction import is_set_by_launcher
print(is_set_by_launcher(os.environ))
"""

TORCHRUN = """
import os, subprocess, sys
os.environ.setdefault("OMP_NUM_THREADS", "1")
environ = {**os.environ, "TORCHELASTIC_RUN_ID": "7"}
# A wrapper of the user's stands between torchrun and the rank.
wrapper = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]], check=True)"
subprocess.run([sys.executable, "-c", wrapper, sys.argv[1]], env=environ, check=True)
"""


@pytest.mark.parametrize(("users", "expected"), [(None, "True\n"), ("1", "False\n")])
def test_a_one_of_torchruns_is_told_from_the_users(users: str | None, expected: str) -> None:
    """By the environment with which torchrun's process began."""
    environ = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", TORCHRUN, RANK],
        env=environ if users is None else {**environ, "OMP_NUM_THREADS": users},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == expected


def test_a_share_that_a_gang_set_is_not_recorded() -> None:
    """Another number, which a conftest set afterwards, is."""
    share = {"OMP_NUM_THREADS": "4", THREADS_SHARE: "4"}
    assert is_set_by_launcher(share)
    assert recorded_variables(share) == {}
    assert recorded_variables({**share, "OMP_NUM_THREADS": "2"}) == {"OMP_NUM_THREADS": "2"}
    assert not is_set_by_launcher({})
