"""A suite for clusters: steps that sleep as the file ``sleep_s`` says, a crash and a hang."""

from typing import Final

SUITE: Final = """
import os, pathlib, signal, time
import pytest

pytestmark = pytest.mark.gpubench(timeout_s=60)

@pytest.mark.parametrize("n", range(6))
def test_step(gpubench, n):
    time.sleep(float(pathlib.Path(__file__).with_name("sleep_s").read_text()))
    gpubench(lambda: time.sleep(0.001))

def test_crash(gpubench):
    os.kill(os.getpid(), signal.SIGSEGV)

@pytest.mark.gpubench(timeout_s=3)
def test_hang(gpubench):
    time.sleep(100)
"""
COUNT: Final = 6
MEASURED: Final = {f"test_step[{n}]": "measured" for n in range(COUNT)}
ENDED: Final = MEASURED | {"test_crash": "crashed", "test_hang": "hang"}
