"""Probe plugin loaded by every launch: records imports, deselects decided benchmarks.

A copy of this file is loaded as ``gpubench_ab_probe`` beside any version of gpubench, so it imports
only the standard library and pytest. It acts before the first test and after the last one, by
environment variables:

``GPUBENCH_AB_LEAVE_OUT``
    a JSON file with a list of node ids to deselect
``GPUBENCH_AB_REPORT``
    a folder; each process writes ``<pid>.json`` with ``modules`` (file by name), ``tests`` (file,
    below the tree, and line, from 1, by node id: where it failed, or is defined) and pytest's
    ``rootdir``
``GPUBENCH_AB_TREE``
    the top of the side's code
``GPUBENCH_AB_SIDE``
    its name: of the base, paths that it does not have yet select nothing
``GPUBENCH_AB_PARENT``
    the launcher's process id; on Linux the session ends with it
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_PR_SET_PDEATHSIG = 1  # prctl(2), <linux/prctl.h>


def pytest_configure(config: pytest.Config) -> None:
    """Ask the kernel to kill this session when its launcher exits (Linux); so its children.

    Drop what the head is about to add from the paths of the base: pytest would refuse all of them.
    """
    if sys.platform == "linux" and os.environ["GPUBENCH_AB_PARENT"] == str(os.getppid()):
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.environ["GPUBENCH_AB_SIDE"] == "base" and not config.option.pyargs:
        folder = config.invocation_params.dir
        config.args[:] = [a for a in config.args if (folder / a.partition("::")[0]).exists()]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Iterator[None]:
    """Deselect exactly the decided benchmarks, whatever ``-k`` or the arguments chose."""
    yield
    file = Path(os.environ["GPUBENCH_AB_LEAVE_OUT"])
    excluded_ids = frozenset(json.loads(file.read_text(encoding="utf-8")))
    deselected = [item for item in items if _id_of(item) in excluded_ids]
    if deselected:
        items[:] = [item for item in items if _id_of(item) not in excluded_ids]
        config.hook.pytest_deselected(items=deselected)


_failures: dict[object, tuple[Path, int]] = {}


def pytest_exception_interact(node: object, call: pytest.CallInfo[object]) -> None:
    """Note the last line of the side's own code that was running when a test failed."""
    for entry in call.excinfo.traceback if call.excinfo else ():
        path, tree = Path(entry.path), os.environ["GPUBENCH_AB_TREE"]
        if path.is_relative_to(tree) and "site-packages" not in path.parts:
            _failures[node] = path, entry.lineno + 1


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Record the files of imported modules and tests."""
    modules = {
        name: str(file)
        for name, module in list(sys.modules.items())
        if (file := getattr(module, "__file__", None))
    }
    tree, tests = Path(os.environ["GPUBENCH_AB_TREE"]), {}
    for item in getattr(session, "items", ()):
        path, line = _failures.get(item) or (item.path, (item.location[1] or 0) + 1)
        path = path.relative_to(tree) if path.is_relative_to(tree) else path
        tests[_id_of(item)] = [str(path), line]
    report = Path(os.environ["GPUBENCH_AB_REPORT"], f"{os.getpid()}.json")
    rootdir = str(session.config.rootpath)
    text = json.dumps({"modules": modules, "tests": tests, "rootdir": rootdir})
    report.with_suffix(".tmp").write_text(text, encoding="ascii")
    report.with_suffix(".tmp").replace(report)


def _id_of(item: pytest.Item) -> str:
    """Its id in the records of this side's gpubench, which may be a version without such ids."""
    module = sys.modules.get("gpubench_plugin.config.parametrization")
    return str(getattr(module, "id_of", lambda item: item.nodeid)(item))
