"""The plugin's hooks, as pytest loads them in every session that has it installed."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_loading_the_plugin_imports_neither_torch_nor_launchers() -> None:
    """A process that is no rank is spared what only ranks and measured sessions need."""
    code = (
        "import importlib, sys, gpubench_plugin.plugin\n"
        "for name in gpubench_plugin.plugin.pytest_plugins: importlib.import_module(name)\n"
        "print([name for name in ('torch', 'numpy', 'gpubench_plugin.launchers')"
        " if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n"
