"""``gpubench baseline``, ``accept`` and ``history``, as a user types them."""

from __future__ import annotations

import csv
import io
import json
import random
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.baselines.resolve import Resolver
from gpubench_plugin.baselines.store import Baselines
from gpubench_plugin.cli.main import main
from gpubench_plugin.results.reader import RunReader
from gpubench_plugin.results.registry.registry import Registry
from gpubench_plugin.results.run_directory import RunDirectory
from tests.support.messages import mentions
from tests.support.runs_builder import MLP, RESNET, measurement, run_id, write_run

if TYPE_CHECKING:
    from pathlib import Path

BOTH = {MLP: 0.010, RESNET: 0.020}


class Shell:
    """Runs the command in a folder; `out` and `err` are of the last one."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]):
        self.results = folder / "results"
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, *arguments: str) -> int:
        self._capsys.readouterr()
        code = main(arguments)
        self.out, self.err = self._capsys.readouterr()
        return code

    def json(self, *arguments: str) -> Any:
        assert self(*arguments, "--format=json") == 0
        return json.loads(self.out)


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GPUBENCH_REGISTRY", raising=False)
    return Shell(tmp_path, capsys)


def test_a_baseline_is_set_listed_shown_and_removed(shell: Shell) -> None:
    """The branch is the first run's; no line is wider than 80 columns."""
    for number in range(2):
        write_run(shell.results, number, BOTH)
    assert shell("baseline", "list") == 0
    assert "no baseline in" in shell.out

    first, second = run_id(0), str(shell.results / "default" / run_id(1))
    assert shell("baseline", "set", "main", first, second, "--reason", "the first two") == 0
    assert shell.out.splitlines() == [
        "baseline main: 2 pinned runs",
        f"  {run_id(0)}",
        f"  {run_id(1)}",
        "later runs on branch main count as samples, too",
        "a gate cannot judge from 2 runs yet: pin 8 more",
        "or wait for 9 later runs on main",
    ]
    assert shell("baseline", "set", "v1", first, "--no-branch") == 0
    assert "no other runs count as samples" in shell.out
    assert "a gate cannot judge from 1 run yet: pin 9 more\n" in shell.out
    assert "later runs on" not in shell.out
    assert shell("baseline", "list") == 0
    assert shell.out.splitlines()[1].split()[:4] == ["main", "2", "main", "0"]
    assert shell("baseline", "show", "main") == 0
    assert "the first two" in shell.out
    assert max(map(len, shell.out.splitlines())) <= 80

    assert shell("baseline", "rm", "main") == 0
    assert shell("baseline", "show", "main") == 2
    assert shell.err == ("gpubench: no baseline named 'main'; existing: v1\n")


def test_pins_of_one_sitting_are_said_to_know_nothing_of_days(shell: Shell) -> None:
    """Ten that began within nine hours; not where two days lie between them."""
    for number in (*range(10), 48):
        write_run(shell.results, number, BOTH)
    runs = [run_id(number) for number in (*range(10), 48)]
    assert shell("baseline", "set", "main", *runs[:10]) == 0
    assert mentions(shell.out, "within 12 hours", "do not show", "between days")
    assert shell("baseline", "set", "main", *runs[1:]) == 0
    assert "between days" not in shell.out
    assert "a gate cannot judge from" not in shell.out


def test_setting_a_baseline_anew_says_what_stays(shell: Shell) -> None:
    """Accepted levels stay unless they are reset."""
    for number in range(3):
        write_run(shell.results, number, BOTH)
    assert shell("baseline", "set", "main", run_id(0)) == 0
    assert "accepted levels" not in shell.out
    assert shell("accept", run_id(1), "mlp", "--reason=meant") == 0
    assert shell("baseline", "set", "main", run_id(1), "--no-branch") == 0
    assert "accepted levels kept: 1 (--reset-accepted drops them)" in shell.out
    assert shell("baseline", "set", "main", run_id(2), "--reset-accepted") == 0
    assert "accepted levels" not in shell.out
    assert shell("baseline", "show", "main") == 0
    assert "accepted levels" not in shell.out
    assert shell.out.count("--reset-accepted") == 1
    assert shell("baseline", "set", "main", run_id(2)) == 0
    assert "accepted levels" not in shell.out


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"status": None}, "interrupted, not complete"),
        ({"dirty": True}, "uncommitted changes"),
        ({"regressed": [MLP]}, "1 regressed verdict"),
        ({"benchmarks": [measurement(flags=("throttled",))]}, "are throttled (1 of 1)"),
    ],
)
def test_an_unfit_run_is_pinned_by_force_and_with_a_reason_only(
    shell: Shell, fields: dict[str, Any], message: str
) -> None:
    """A regressed run never becomes a baseline by itself; what was overruled is kept."""
    run = write_run(shell.results, 0, **fields)
    assert shell("baseline", "set", "main", run.run_id) == 2
    assert mentions(shell.err, f"{run.run_id}: ", message)
    assert shell("baseline", "set", "main", run.run_id, "--force") == 2
    assert "--force with --reason" in shell.err
    assert shell("baseline", "list") == 0
    assert "no baseline in" in shell.out
    assert shell("baseline", "set", "main", run.run_id, "--force", "--reason=we know") == 0
    assert shell("baseline", "show", "main") == 0
    assert message.rsplit(maxsplit=1)[-1] in shell.out
    assert "overridden" in shell.out


def test_bad_input_is_said_in_one_message(shell: Shell) -> None:
    """With exit code 2, and nothing is written."""
    write_run(shell.results, 0)
    for arguments, message in (
        (("set", "a/b", run_id(0)), "is not a valid folder name"),
        (("set", run_id(0), run_id(0)), "looks like a run id or a file"),
        (
            ("set", "last", run_id(0)),
            "means the last comparable run and cannot be a baseline's name",
        ),
        (("set", "main", "2099"), "no run in"),
        (("set", "main", "2026"), None),
        (("show", "main"), "no baseline named"),
        (("rm", "main\x1b[31m"), "is not a valid folder name"),
    ):
        code = shell("baseline", *arguments)
        if message is None:
            assert code == 0
            assert shell("baseline", "rm", "main") == 0
            continue
        assert code == 2, arguments
        assert message in shell.err
        assert shell.err.count("\n") == 1
        assert "\x1b" not in shell.err


def test_accept_moves_the_anchor_of_one_benchmark(shell: Shell) -> None:
    """Named by a part of its id; the only baseline need not be named."""
    write_run(shell.results, 0, BOTH)
    write_run(shell.results, 1, BOTH, regressed=[MLP])
    feature_run = write_run(shell.results, 2, BOTH, branch="feature", dirty=True)
    assert shell("accept", run_id(1), "mlp", "--reason=r") == 2
    assert "no baseline exists yet" in shell.err
    assert shell("baseline", "set", "main", run_id(0)) == 0
    assert shell("accept", run_id(1), "mlp", "--reason", "a better loss") == 0
    assert MLP in shell.out
    assert shell.err == ""
    assert shell("baseline", "show", "main") == 0
    assert f"from {run_id(1)} on" in shell.out
    assert shell("accept", run_id(1), "mlp", "--reason= ") == 2
    assert "--reason: empty" in shell.err
    assert shell("accept", run_id(1), "mpl_train", "--reason=r") == 2
    assert "matches 'mpl_train'" in shell.err
    assert "did you mean" in shell.err
    assert shell("accept", run_id(1), "train", "--reason=r") == 2
    assert "give one of them, or --all" in shell.err
    assert [f"  '{MLP}'", f"  '{RESNET}'"] == shell.err.splitlines()[1:]
    assert shell("accept", run_id(1), "train", "--reason=r", "--all", "--format=json") == 0
    assert json.loads(shell.out)["accepted"] == [MLP, RESNET]
    assert shell("accept", feature_run.run_id, "mlp", "--reason=r") == 0
    assert "better accept the first run on 'main'" in shell.err
    assert "uncommitted changes" in shell.err
    assert shell("baseline", "set", "v1", run_id(0)) == 0
    assert shell("accept", run_id(1), "mlp", "--reason=r") == 2
    assert "name one: main, v1" in shell.err
    assert shell("accept", run_id(1), "mlp", "--reason=r", "--baseline=v2") == 2
    assert shell("accept", run_id(1), "mlp", "--reason=r", "--baseline=v1") == 0


def test_a_database_that_is_down_is_said(shell: Shell) -> None:
    """What needs only the runs that are here works; the password is not shown."""
    write_run(shell.results, 0, BOTH)
    url = "--registry=postgresql+psycopg://me:secret@127.0.0.1:9/none"
    show, tag = ("runs", "show", run_id(0)), ("runs", "tag", "last", "x")
    for command, code in ((("history", "mlp"), 0), (show, 0), (tag, 4)):
        assert shell(*command, url) == code
        assert "127.0.0.1:9" in shell.err
        assert "secret" not in shell.err


def test_a_run_of_another_machine_is_pinned_from_the_registry(shell: Shell) -> None:
    """Its folder need not be here; whether it regressed is known from there."""
    for number in range(2):
        write_run(shell.results, number, BOTH, regressed=[MLP] if number else ())
    with Registry.open("", shell.results) as registry:
        for journal in shell.results.glob("*/*/metrics.jsonl"):
            registry.ingest(RunDirectory(path=journal.parent))
            journal.unlink()
    assert shell("baseline", "set", "main", run_id(0)) == 0
    assert shell("baseline", "set", "bad", run_id(1)) == 2
    assert "it has 1 regressed verdict" in shell.err
    assert shell("runs", "show", run_id(0)) == 0
    assert "not on this machine" in shell.out
    assert "baselines   main" in shell.out


def test_the_registry_alone_is_enough(shell: Shell) -> None:
    """After the folders were deleted: history, the last run, a baseline's samples, two runs."""
    for number in range(12):
        write_run(shell.results, number, BOTH)
    head = RunReader(write_run(shell.results, 12, BOTH)).run()
    assert shell("baseline", "set", "main", run_id(0)) == 0
    assert shell("db", "ingest") == 0
    shutil.rmtree(shell.results / "default")

    assert len(_series(shell, MLP)[0]["points"]) == 13
    assert shell("compare", run_id(0), run_id(1)) == 0
    with Resolver("", shell.results, shell.results) as resolver:
        history = resolver.reference("main", benchmarks=BOTH, head=head)
        last = resolver.reference("last", benchmarks=BOTH, head=head)
    assert [run.run_id for run in history.runs] == [run_id(number) for number in range(12)]
    assert [run.run_id for run in last.runs] == [run_id(11)]
    assert shell("runs", "tag", run_id(3), "release") == 0
    (tagged,) = shell.json("runs", "list", "--tag=release")["runs"]
    assert (tagged["run_id"], tagged["path"]) == (run_id(3), None)


def _write_history(shell: Shell) -> None:
    chance = random.Random(7)
    slow = {"cpu": {"model": "Another processor", "usable_cores": 2}}
    for number in range(40):
        step = 0.010 * (1 + chance.gauss(0, 0.004)) * (1.05 if number >= 25 else 1)
        write_run(shell.results, number, {MLP: step, RESNET: 0.02})
    for number in range(40, 43):
        write_run(shell.results, number, {MLP: 0.030}, facts=slow)
    write_run(shell.results, 43, {MLP: 0.5}, branch="feature")


@pytest.mark.parametrize("registry", [True, False], ids=["registry", "folders"])
def test_history_shows_where_the_level_changed(shell: Shell, registry: bool) -> None:
    """With run, commit and size; other machines stand apart; it never gates."""
    _write_history(shell)
    if registry:
        assert shell("db", "ingest") == 0
    assert shell("history", "mlp") == 0
    assert "40 runs, series 1 of 2 (fingerprint " in shell.out
    assert "3 runs, series 2 of 2 (differs from series 1 in cpu.model" in shell.out
    change = next(
        line for line in shell.out.splitlines() if line.startswith("new level starting with")
    )
    assert run_id(25) in change
    assert f"commit {25:040x}"[:16] in change
    assert "no level change detected" in shell.out
    assert max(map(len, shell.out.splitlines())) <= 80
    assert run_id(43) not in shell.out

    first, second = _series(shell, MLP)
    (point,) = first["changes"]
    assert (point["index"], point["point"]["run_id"]) == (25, run_id(25))
    assert point["change"] == pytest.approx(0.05, abs=0.01)
    assert [p["value"] for p in second["points"]] == [0.030] * 3
    assert _series(shell, MLP, "--branch=", "-n1")[0]["points"][0]["branch"] == "feature"

    assert shell("history", "mlp", "--format=csv", "--last=20") == 0
    rows = list(csv.DictReader(io.StringIO(shell.out)))
    assert len(rows) == 20
    assert {row["unit"] for row in rows} == {"s"}


def _series(shell: Shell, *arguments: str) -> list[dict[str, Any]]:
    """The series of the one benchmark that is named."""
    (history,) = shell.json("history", *arguments)["histories"]
    series: list[dict[str, Any]] = history["segments"]
    return series


def test_history_without_a_main_branch_takes_any(shell: Shell) -> None:
    """A project without git, or with another main branch, sees its runs, and is told."""
    write_run(shell.results, 0, {MLP: 0.5}, branch="trunk")
    assert shell("history", "mlp") == 0
    assert "no run of branch main is known" in shell.err
    assert _series(shell, MLP)[0]["points"][0]["branch"] == "trunk"


def test_history_of_what_is_not_there_names_the_nearest(shell: Shell) -> None:
    """So for benchmarks and for metrics."""
    write_run(shell.results, 0, BOTH)
    for arguments, message in (
        (("vit",), "no measured benchmark of the runs"),
        (("mlp_trian",), "did you mean"),
        (("mlp", "--branch=gone"), "branch gone (--branch= selects any) in "),
        (("mlp", "--metric=step_time"), "did you mean 'step_time_s'"),
        (("mlp", "--format=html"), "--format: unknown 'html'"),
        (("mlp", "--last=0"), "--last: '0'"),
    ):
        assert shell("history", *arguments) == 2
        assert message in shell.err


def test_a_missing_baseline_is_pinned_once(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second time nothing happens, whatever run is given, and it is said."""
    write_run(shell.results, 0, BOTH)
    write_run(shell.results, 1, regressed=[MLP])
    assert shell("baseline", "set", "--if-missing", "main", run_id(0)) == 0
    assert "1 pinned run" in shell.out
    for run in (run_id(1), "2099"):
        assert shell("baseline", "set", "--if-missing", "main", run) == 0
        assert shell.out == "baseline main already exists and is left unchanged\n"
    monkeypatch.setattr(Baselines, "get", lambda *_: None)  # somebody sets it at the same time
    assert shell("baseline", "set", "--if-missing", "main", run_id(0), "--format=json") == 0
    assert json.loads(shell.out)["changed"] is False
    assert shell("baseline", "set", "--if-missing", "other", run_id(1)) == 2


def test_commands_on_baselines_need_the_server(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it is down, they exit with 4, write nothing, and show no password."""
    write_run(shell.results, 0, BOTH)
    assert shell("baseline", "set", "main", run_id(0)) == 0
    file = shell.results / "baselines" / "main.json"
    before = file.read_text()
    monkeypatch.setenv("GPUBENCH_REGISTRY", "postgresql+psycopg://u:hunter2@127.0.0.1:1/db")
    for command in (
        ("baseline", "list"),
        ("baseline", "show", "main"),
        ("baseline", "rm", "main"),
        ("baseline", "set", "--if-missing", "main", run_id(0)),
        ("accept", run_id(0), "mlp", "--reason=x", "--baseline=main"),
        ("accept", run_id(0), "mlp", "--reason=x"),
        ("compare", "main", run_id(0)),
        ("runs", "prune", "--runs", "--keep-last=0"),
    ):
        assert shell(*command) == 4, command
        assert "the baselines cannot be read" in shell.err
        assert "127.0.0.1" in shell.err
        assert "hunter2" not in shell.err
        assert len(shell.err.splitlines()) == 1
    assert file.read_text() == before


def test_an_accepted_run_from_before_the_pin_is_warned_about(shell: Shell) -> None:
    """Its samples are older than what the baseline was meant to begin with."""
    for number in range(3):
        write_run(shell.results, number, BOTH)
    assert shell("baseline", "set", "main", run_id(1)) == 0
    for number, older in ((0, True), (1, False), (2, False)):
        assert shell("accept", run_id(number), "mlp", "--reason=x") == 0
        assert ("older than" in shell.err) == older
