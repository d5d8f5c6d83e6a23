"""Completion by the functions that a shell really calls."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.runs_builder import MLP, run_id, write_run

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("argcomplete")

ESCAPED = MLP.replace("[", r"\[").replace("]", r"\]")
LINES = {
    "gpubench ru": ["runs"],
    "gpubench compare --format ": ["csv", "json", "markdown", "table"],
    f"gpubench runs show {run_id(0)[:4]}": [run_id(0), run_id(1)],
    "gpubench watch l": ["last"],
    "gpubench watch ma": [],
    "gpubench compare l": ["last"],
    "gpubench compare ma": ["main"],
    f"gpubench explain {run_id(0)} {MLP[:4]}": [ESCAPED],
    f"gpubench explain {run_id(0)} odd": [r"odd.py::a\\x1bb"],
    f"gpubench accept {run_id(1)} {MLP[:4]}": [],
    "gpubench accept 2026 x --baseline ma": ["main"],
}
SCRIPT = """
eval "$("$PYTHON" -m argcomplete.scripts.register_python_argcomplete gpubench)"
while IFS= read -r COMP_LINE; do
  COMP_POINT=${#COMP_LINE} COMP_TYPE=9 COMPREPLY=()
  _python_argcomplete gpubench
  echo "${COMPREPLY[@]}"
done
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_commands_values_and_names(tmp_path: Path) -> None:
    """From any folder of the project, without torch; a damaged run is passed over in silence."""
    for number in (1, 0):
        write_run(tmp_path / "results", number, {MLP: 0.010, "odd.py::a\x1bb": 0.010})
    (tmp_path / "results" / "default" / run_id(1) / "summary.json").write_text("{")
    baselines = tmp_path / "results" / "baselines"
    baselines.mkdir()
    (baselines / "main.json").write_text("{}")
    (tmp_path / "pytest.ini").write_text("")
    folder = tmp_path / "sub"
    folder.mkdir()
    command = tmp_path / "bin" / "gpubench"
    command.parent.mkdir()
    main = "sys.modules['torch'] = None\nfrom gpubench_plugin.__main__ import main"
    command.write_text(f"#!{sys.executable}\nimport sys\n{main}\nsys.exit(main())\n")
    command.chmod(0o755)
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    process = subprocess.run(
        ["bash", "-c", SCRIPT],
        input="".join(f"{line}\n" for line in LINES),
        env={**os.environ, "PATH": path, "PYTHON": sys.executable},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert [sorted(line.split()) for line in process.stdout.splitlines()] == [*LINES.values()]
    assert process.stderr == ""


def test_without_the_library_nothing_is_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A shell that another environment has set up gets no completions, and no command's output."""
    from gpubench_plugin.cli.main import main

    monkeypatch.setenv("_ARGCOMPLETE", "1")
    monkeypatch.setitem(sys.modules, "argcomplete", None)
    with pytest.raises(SystemExit, match="1"):
        main(["list"])
    assert capsys.readouterr() == ("", "")
