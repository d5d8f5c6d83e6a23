"""Completion by the functions that a shell really calls."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.runs_builder import run_id, write_run

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("argcomplete")

LINES = {
    "gpubench ru": ["runs"],
    "gpubench compare --format ": ["csv", "json", "markdown", "table"],
    f"gpubench runs show {run_id(0)[:4]}": [run_id(0), run_id(1)],
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
def test_bash_completes_commands_values_runs_and_baselines(tmp_path: Path) -> None:
    """From any folder of the project; nothing is run and nothing else is printed."""
    for number in range(2):
        write_run(tmp_path / "results", number)
    baselines = tmp_path / "results" / "baselines"
    baselines.mkdir()
    (baselines / "main.json").write_text("{}")
    (tmp_path / "pytest.ini").write_text("")
    folder = tmp_path / "sub"
    folder.mkdir()
    command = tmp_path / "bin" / "gpubench"
    command.parent.mkdir()
    main = "from gpubench_plugin.cli.main import main"
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
