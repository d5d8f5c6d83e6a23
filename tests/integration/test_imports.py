"""Every module of the package can be imported, with whichever build of torch there is."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import pytest

import gpubench_plugin


@pytest.mark.exhaustive  # the tests import what they test
def test_every_module_can_be_imported() -> None:
    """No module needs a device, or a driver, to be imported."""
    names = [
        module.name
        for module in pkgutil.walk_packages(gpubench_plugin.__path__, "gpubench_plugin.")
    ]
    assert len(names) > 300
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(f"import {name}" for name in names)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
