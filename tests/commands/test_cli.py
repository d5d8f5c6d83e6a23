"""Tests of the command line that the commands share."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from gpubench_plugin import catalog, cli
from gpubench_plugin.commands.base import Exit
from gpubench_plugin.commands.schema import Schema
from gpubench_plugin.errors import (
    GpubenchError,
    NothingComparable,
    RegistryError,
    ResultsError,
    UsageProblem,
)

FULL = Path("/dev/full")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageProblem("said"), Exit.USAGE),
        (NothingComparable("said"), Exit.NOTHING_COMPARABLE),
        (RegistryError("said"), Exit.INFRASTRUCTURE),
        (ResultsError("said"), Exit.INFRASTRUCTURE),
    ],
)
def test_an_error_is_one_line_with_its_exit_code(
    error: GpubenchError,
    code: Exit,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What a command raises on purpose is said without a traceback."""

    def run(self: Schema, options: object) -> int:
        raise error

    monkeypatch.setattr(Schema, "run", run)
    assert cli.main(["schema"]) == code
    assert capsys.readouterr() == ("", "gpubench: said\n")


@pytest.mark.parametrize("arguments", [[], ["copmare"], ["schema", "sumary"], ["doctor", "--fast"]])
def test_bad_usage_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """No command, an unknown one, an unknown argument: said, exit code 2."""
    try:
        code = cli.main(arguments)
    except SystemExit as end:  # argparse's own
        code = int(end.code or 0)
    assert code == Exit.USAGE
    assert "gpubench" in capsys.readouterr().err


@pytest.mark.parametrize("name", catalog.choices("commands"))
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each says what it is for and which arguments it takes."""
    with pytest.raises(SystemExit) as end:
        cli.main([name, "--help"])
    assert end.value.code == 0
    assert f"gpubench {name}" in capsys.readouterr().out


def test_help_imports_nothing_heavy() -> None:
    """All commands are loaded to parse a command line, so none imports a heavy library."""
    script = (
        "import sys; from gpubench_plugin import cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'pydantic', 'yaml', 'scipy', 'sqlalchemy', 'alembic', 'rich'}\n"
        "print('heavy:', sorted(heavy & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith("heavy: []\n"), done.stdout


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """The published schema of summary.json comes out as it is in the docs."""
    from gpubench_plugin.results.summary import schema_text

    assert cli.main(["schema"]) == Exit.FINE
    assert capsys.readouterr().out == schema_text()


@pytest.mark.skipif(not FULL.exists(), reason="a device of Linux")
def test_a_full_disk_behind_the_output_is_one_line() -> None:
    """Exit code 4: no traceback, and nothing that Python adds at its end."""
    script = "import sys; from gpubench_plugin.cli import main; sys.exit(main())"
    with FULL.open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", script, "schema"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == Exit.INFRASTRUCTURE, done.stderr
    assert done.stderr == "gpubench: the output could not be written: No space left on device\n"


def test_a_reader_that_goes_away_keeps_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """``gpubench … | head`` tells a regression all the same."""

    class Gone(io.StringIO):
        def flush(self) -> None:
            raise BrokenPipeError

    monkeypatch.setattr(Schema, "run", lambda self, options: Exit.REGRESSION)
    monkeypatch.setattr(sys, "stdout", Gone())
    assert cli.main(["schema"]) == Exit.REGRESSION


def test_arguments_of_pytest_before_the_dashes_are_explained(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """``gpubench ab`` says where they belong."""
    with pytest.raises(SystemExit) as end:
        cli.main(["ab", "--base=main", "benchmarks", "--k", "resnet"])
    assert end.value.code == Exit.USAGE
    said = "unrecognized arguments: --k resnet; what pytest is to get stands after --\n"
    assert capsys.readouterr().err.endswith(said)
