"""Tests of the command line that the commands share."""

from __future__ import annotations

import io
import runpy
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import pytest

import gpubench_plugin
from gpubench_plugin import __main__
from gpubench_plugin.cli import main
from gpubench_plugin.cli.commands.base import ExitCode
from gpubench_plugin.cli.commands.schema import Schema
from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import (
    GpubenchError,
    NothingComparable,
    RegistryError,
    ResultsError,
    UsageProblem,
)
from tests.support.messages import mentions
from tests.support.runs_builder import MLP, write_run
from tests.support.schemas import DESCRIBES

FULL = Path("/dev/full")
MAIN = "import sys; from gpubench_plugin.cli.main import main; sys.exit(main())"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageProblem("said"), ExitCode.USAGE),
        (NothingComparable("said"), ExitCode.NOTHING_COMPARABLE),
        (RegistryError("said"), ExitCode.INFRASTRUCTURE),
        (ResultsError("said"), ExitCode.INFRASTRUCTURE),
    ],
)
def test_an_error_is_one_line_with_its_exit_code(
    error: GpubenchError,
    code: ExitCode,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Expected errors are printed without a traceback."""

    def run(self: Schema, options: object) -> int:
        raise error

    monkeypatch.setattr(Schema, "run", run)
    assert main.main(["schema"]) == code
    assert capsys.readouterr() == ("", "gpubench: said\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["list", "metrcs"], "KIND: unknown 'metrcs' (did you mean 'metrics'?)"),
        (["list", "--format=jsn"], "--format: unknown 'jsn' (did you mean 'json'?)"),
        (["copmare"], "unknown 'copmare' (did you mean 'compare'?); allowed: ab, "),
        (["baseline", "lst"], "unknown 'lst' (did you mean 'list'?); allowed: set, list, "),
        (["compare", "--fromat=json"], "--fromat=json (did you mean '--format'?)"),
        (["runs", "list", "--experment", "x"], "--experment x (did you mean '--experiment'?)"),
        (["hist"], "unknown 'hist' (did you mean 'history'?)"),
        (["Runs"], "unknown 'Runs' (did you mean 'runs'?)"),
        (["mak"], "unknown 'mak'; allowed: ab, "),
        (["runs", "list", "--json"], "usage: gpubench runs list"),
        (["ab", "--precision=amp"], "--precision=amp; pytest's arguments go after --"),
        (["ab", "--base=main", "a", "--k", "b"], "--k b; pytest's arguments go after --"),
        ([], "the following arguments are required: COMMAND"),
    ],
)
def test_what_is_misspelt_is_answered_with_the_nearest(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands, actions, kinds, formats, and the options of the command that is used."""
    try:
        code = main.main(arguments)
    except SystemExit as end:  # argparse's own
        code = int(end.code or 0)
    assert code == ExitCode.USAGE
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", catalog.choices("commands"))
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each has a description and help for its arguments."""
    with pytest.raises(SystemExit) as end:
        main.main([name, "--help"])
    assert end.value.code == 0
    assert f"gpubench {name}" in capsys.readouterr().out


@pytest.mark.parametrize("module", ["__main__.py", "cli/main.py"])
def test_the_package_runs_as_the_command(
    module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``python -m`` with the package, or its command's module, does the same as gpubench."""
    monkeypatch.setattr(sys, "argv", ["x", "--version"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_path(str(Path(gpubench_plugin.__path__[0], module)), run_name="__main__")
    assert capsys.readouterr().out.startswith("gpubench 0.")


@pytest.mark.slow
def test_an_interrupt_while_it_is_imported_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C before the command has begun ends it as one later."""

    class Module(types.ModuleType):
        def __getattr__(self, name: str) -> object:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "gpubench_plugin.cli.main", Module("main"))
    assert __main__.main() == 130
    assert capsys.readouterr().err == "gpubench: interrupted\n"


@pytest.mark.slow
def test_help_imports_nothing_heavy() -> None:
    """All commands are loaded to parse a command line, so none imports a heavy library."""
    script = (
        "import sys; from gpubench_plugin.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'pydantic', 'yaml', 'scipy', 'sqlalchemy'}\n"
        "print('heavy:', sorted(heavy & sys.modules.keys()))"
    )
    process = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert process.stdout.endswith("heavy: []\n"), process.stdout


@DESCRIBES
def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """The schema of summary.json equals the published one."""
    assert main.main(["schema"]) == ExitCode.OK
    published = Path(main.__file__).parents[2] / "docs" / "schemas" / "summary.schema.json"
    assert capsys.readouterr().out == published.read_text()


@pytest.mark.slow
@pytest.mark.skipif(not FULL.exists(), reason="a device of Linux")
def test_a_full_disk_behind_the_output_is_one_line() -> None:
    """Exit code 4: no traceback, and no message from the interpreter's exit."""
    with FULL.open("w") as full:
        process = subprocess.run(
            [sys.executable, "-c", MAIN, "schema"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert process.returncode == ExitCode.INFRASTRUCTURE, process.stderr
    assert process.stderr == "gpubench: cannot write the output: No space left on device\n"


def test_a_reader_that_goes_away_keeps_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """``gpubench … | head`` still exits with the code of a regression."""

    class Gone(io.StringIO):
        def flush(self) -> None:
            raise BrokenPipeError

    monkeypatch.setattr(Schema, "run", lambda self, options: ExitCode.REGRESSION)
    monkeypatch.setattr(sys, "stdout", Gone())
    assert main.main(["schema"]) == ExitCode.REGRESSION


@pytest.mark.slow
@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_closed_streams_keep_the_exit_code(tmp_path: Path, closed: str) -> None:
    """``gpubench compare … >&-`` keeps the exit code, and writes into no other file."""
    slow = write_run(tmp_path, 2, {MLP: 0.020})
    fast = write_run(tmp_path, 1, {MLP: 0.010})
    compare = f"exec '{sys.executable}' -c '{MAIN}' compare {fast} {slow} --registry=none {closed}"
    process = subprocess.run(
        ["sh", "-c", compare], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (process.returncode, process.stdout, process.stderr) == (ExitCode.REGRESSION, "", "")


def test_a_working_folder_that_is_gone_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names the directory, not the output."""
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert main.main(["runs", "list"]) == ExitCode.INFRASTRUCTURE
    assert "the current directory no longer exists" in capsys.readouterr().err


def test_an_error_nobody_has_foreseen_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 4, not a regression's; the traceback is in a private file, without secrets."""
    url, token = "postgresql://me:hunter2@host/db", "ghp_" + "a" * 20

    def run(self: Schema, options: object) -> int:
        raise KeyError(url, "hunter2", token, "\x1b[31m")

    monkeypatch.setattr(Schema, "run", run)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("GPUBENCH_REGISTRY", url)
    assert main.main(["schema"]) == ExitCode.INFRASTRUCTURE
    out, err = capsys.readouterr()
    (file,) = tmp_path.iterdir()
    assert out == ""
    assert err.startswith("gpubench: unexpected KeyError: ")
    assert err.endswith(f"please report it with the traceback in {file}\n")
    assert err.count("\n") == 1
    text = file.read_text()
    assert "in run" in text
    assert "me:hunter2" not in text + err
    assert token not in text + err
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_traceback_that_cannot_be_kept_is_still_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error is printed even if there is no temporary folder."""

    def run(self: Schema, options: object) -> int:
        raise RecursionError

    monkeypatch.setattr(Schema, "run", run)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    assert main.main(["schema"]) == ExitCode.INFRASTRUCTURE
    said = ("gpubench: unexpected RecursionError; ", "could not be saved: No such file")
    assert mentions(capsys.readouterr().err, *said)
