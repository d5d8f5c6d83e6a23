"""The plugin in every launch, loaded by its file in a pytest of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpubench_plugin.cli.ab import launch_plugin

pytestmark = pytest.mark.slow


TESTS = """
import pytest

@pytest.mark.parametrize("kind", ["a b", "x::y", "[q]'", "ü", "1", "10"])
def test_kind(kind):
    import helper
"""


def test_exactly_the_named_tests_are_left_out(tmp_path: Path) -> None:
    """Brackets, spaces, colons and quotes in ids are taken as they are; -k still applies."""
    report, tree = tmp_path / "report", tmp_path / "tree"
    for folder in (report, tree, tmp_path / "probe"):
        folder.mkdir()
    shutil.copyfile(launch_plugin.__file__, tmp_path / "probe/gpubench_ab_probe.py")
    (tree / "pytest.ini").write_text("[pytest]\n")
    (tree / "helper.py").touch()
    (tree / "test_it.py").write_text(TESTS)
    left_out = [
        "test_it.py::test_kind[a b]",
        "test_it.py::test_kind[[q]']",
        "test_it.py::test_kind[1]",
    ]
    (tmp_path / "left-out.json").write_text(json.dumps(left_out))
    options = ["-v", "-p", "gpubench_ab_probe", "-p", "no:gpubench", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-k", "not x::y and not xfc"],
        cwd=tree,
        env={
            **os.environ,
            "PYTHONPATH": str(tmp_path / "probe"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "GPUBENCH_AB_PARENT": str(os.getpid()),
            "GPUBENCH_AB_LEAVE_OUT": str(tmp_path / "left-out.json"),
            "GPUBENCH_AB_REPORT": str(report),
            "GPUBENCH_AB_TREE": str(tree),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert "test_kind[10] PASSED" in done.stdout, done.stdout + done.stderr
    assert "1 passed, 5 deselected" in done.stdout
    (file,) = report.iterdir()
    told = json.loads(file.read_text())
    assert told["tests"] == {"test_it.py::test_kind[10]": ["test_it.py", 4]}
    assert told["rootdir"] == str(tree)
    assert told["modules"]["helper"] == str(tree / "helper.py")
