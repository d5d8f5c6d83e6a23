"""What is done to a folder of results, each to be killed at all of its points."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from unittest.mock import patch

from gpubench_plugin.baselines.resolve import Resolver
from gpubench_plugin.baselines.store import Baselines
from gpubench_plugin.cli import main
from gpubench_plugin.core.verdicts import Comparison
from gpubench_plugin.results.reader import RunReader, RunToResume
from gpubench_plugin.results.recorder import Recorder
from gpubench_plugin.results.registry.registry import Registry
from gpubench_plugin.results.run_directory import RunDirectory, runs_in, tags_of
from tests.support.kill_points import Scenario
from tests.support.runs_builder import MLP, RESNET, environment, measurement, run_id, write_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubench_plugin.core.records import Measurement
    from tests.support.kill_points import Ended

CONFIGURATIONS = f"""
"{MLP}": {{distributed: {{world_size: 1}}}}
"{RESNET}": {{distributed: {{world_size: 1}}}}
"""

PARSER = cache(main.build_parser)
"""Made once: with all its commands it takes as long as most of them."""


@cache
def empty_registry() -> bytes:
    """A database with its tables, made once: making them takes longer than all that is done."""
    with TemporaryDirectory() as folder:
        Registry.open("", Path(folder)).close()
        return Path(folder, "registry.sqlite").read_bytes()


class Results(Scenario):
    """A folder of results with its registry: every command must work, whatever was killed."""

    url = ""
    """Of the registry."""

    def command(self, folder: Path, *words: str) -> str:
        """Run ``gpubench``, which must succeed; what it said."""
        where = [f"--results-dir={folder}", f"--registry={self.url}"]
        with (
            redirect_stdout(io.StringIO()) as out,
            redirect_stderr(io.StringIO()) as err,
            patch.object(main, "build_parser", PARSER),
        ):
            code = main.main([*words, *where])
        assert code == 0, (words, out.getvalue(), err.getvalue())
        return out.getvalue()

    def store(self, folder: Path) -> None:
        """Store all runs."""
        if not self.url:
            (folder / "registry.sqlite").write_bytes(empty_registry())
        self.command(folder, "db", "ingest")

    def look(self, folder: Path, ended: Sequence[str]) -> None:
        """All runs can be listed, shown and stored; none is in the registry that was removed."""
        listed = json.loads(self.command(folder, "runs", "list", "--last=0", "--format=json"))
        assert {run["status"] for run in listed["runs"]} <= {"complete", "interrupted"}
        assert len(listed["runs"]) == len(runs_in(folder))
        self.command(folder, "runs", "show", runs_in(folder)[-1].run_id)
        self.command(folder, "baseline", "list")
        self.command(folder, "db", "ingest")


class Session(Results):
    """A session measures two benchmarks into a new run; then it goes on, or another one begins."""

    measurements = (measurement(MLP, 0.010), measurement(RESNET, 0.020))

    def prepare(self, folder: Path) -> None:
        write_run(folder, 0)
        self.store(folder)

    def act(self, folder: Path, ended: Ended) -> None:
        directory = RunDirectory.create(folder, "default", run_id(1))
        self._measure(self._started(directory), self.measurements, ended)

    @staticmethod
    def _started(directory: RunDirectory) -> Recorder:
        return Recorder.start(
            directory,
            command=["benchmarks"],
            environment=environment(),
            code={},
            configurations=CONFIGURATIONS,
            params={one.id: one.params for one in Session.measurements},
        )

    @staticmethod
    def _measure(recorder: Recorder, missing: Sequence[Measurement], ended: Ended) -> None:
        for one in missing:
            recorder.record(one)
            ended(one.id)
        recorder.keep_verdicts(Comparison(base="main", head="this", verdicts=()))
        recorder.finish("complete", Session.measurements, {"benchmarks": []})
        ended("run")

    def look(self, folder: Path, ended: Sequence[str]) -> None:
        super().look(folder, ended)
        self.require(folder, ended)

    def require(self, folder: Path, ended: Sequence[str]) -> None:
        """What had ended is recorded as it was."""
        recorded = [one for one in self.measurements if one.id in ended]
        for run in [run for run in runs_in(folder) if run.run_id == run_id(1)]:
            found = {one.id: one for one in RunReader(run).record().benchmarks}
            assert [found[one.id].metrics for one in recorded] == [o.metrics for o in recorded]
            if "run" in ended:
                assert RunReader(run).run().status == "complete"
            return
        assert not recorded

    def again(self, folder: Path) -> None:
        left = [run for run in runs_in(folder) if run.run_id != run_id(0)]
        if not left:
            later = RunDirectory.create(folder, "default", run_id(2))
            self._measure(self._started(later), self.measurements, lambda _: None)
            return
        earlier = RunToResume(left[-1])
        measured = earlier.measured(earlier.measurements, launches=1)
        recorder = Recorder.resume(earlier, command=["benchmarks"], carried_over=len(measured))
        missing = [one for one in self.measurements if one.id not in measured]
        self._measure(recorder, missing, lambda _: None)

    def verify(self, folder: Path, ended: Sequence[str]) -> None:
        first, latest = runs_in(folder)[0], runs_in(folder)[-1]
        assert first.run_id == run_id(0)
        assert RunReader(first).run().results[MLP].metrics["step_time_s"].value == 0.010
        run = RunReader(latest).run()
        assert (run.status, latest.summary.is_file()) == ("complete", True)
        assert {i: r.metrics for i, r in run.results.items()} == {
            one.id: one.metrics for one in self.measurements
        }


class Resume(Session):
    """A session goes on with a run that was killed in its second benchmark."""

    def prepare(self, folder: Path) -> None:
        super().prepare(folder)
        recorder = self._started(RunDirectory.create(folder, "default", run_id(1)))
        recorder.record(self.measurements[0])
        recorder.close()

    def act(self, folder: Path, ended: Ended) -> None:
        ended(MLP)
        self.again(folder)


class Prune(Results):
    """Whole runs are removed, but for one that is tagged, one that is pinned, and the last."""

    def prepare(self, folder: Path) -> None:
        for number in range(5):
            run = write_run(folder, number)
            (run.path / "traces").mkdir()
            (run.path / "traces" / "rank0.json").write_text("{}")
        self.store(folder)
        self.command(folder, "baseline", "set", "main", run_id(1), "--no-branch")
        self.command(folder, "runs", "tag", run_id(2), "release")

    def act(self, folder: Path, ended: Ended) -> None:
        self.command(folder, "runs", "prune", "--keep-last=1", "--runs")

    def again(self, folder: Path) -> None:
        self.act(folder, lambda _: None)

    def look(self, folder: Path, ended: Sequence[str]) -> None:
        super().look(folder, ended)
        kept = {run.run_id: run for run in runs_in(folder)}
        for number in (1, 2, 4):
            run = kept[run_id(number)]
            assert RunReader(run).run().status == "complete"
            assert (run.path / "traces" / "rank0.json").read_text() == "{}"
        assert tags_of(kept[run_id(2)]) == ("release",)

    def verify(self, folder: Path, ended: Sequence[str]) -> None:
        left = sorted(path.name for path in (folder / "default").iterdir())
        assert left == [run_id(number) for number in (1, 2, 4)]
        assert self.command(folder, "db", "ingest") == "0 stored, 3 already present\n"


class Accept(Results):
    """A benchmark's level is accepted; another one's was before."""

    def prepare(self, folder: Path) -> None:
        for number in range(2):
            write_run(folder, number, {MLP: 0.010, RESNET: 0.020})
        self.store(folder)
        self.command(folder, "baseline", "set", "main", run_id(0))
        self.command(folder, "accept", run_id(1), RESNET, "--reason=before")

    def act(self, folder: Path, ended: Ended) -> None:
        self.command(folder, "accept", run_id(1), MLP, "--reason=meant")
        ended("accepted")

    def again(self, folder: Path) -> None:
        self.act(folder, lambda _: None)

    def look(self, folder: Path, ended: Sequence[str]) -> None:
        super().look(folder, ended)
        self.require(folder, accepted="accepted" in ended)

    def require(self, folder: Path, *, accepted: bool) -> None:
        with Resolver(self.url, folder, folder) as resolver:
            baseline = resolver.baselines().require("main")
        assert (baseline.accepted_runs[RESNET], baseline.runs) == (run_id(1), (run_id(0),))
        assert [(c.action, c.reason) for c in baseline.changes][:2] == [
            ("set", ""),
            ("accept", "before"),
        ]
        if accepted:
            assert baseline.acceptances[MLP].reason == "meant"
        # As many changes as say so, and nothing that only one of both says.
        meant = [change for change in baseline.changes if change.reason == "meant"]
        assert bool(meant) == (MLP in baseline.acceptances)

    def verify(self, folder: Path, ended: Sequence[str]) -> None:
        self.require(folder, accepted=True)
        assert "main" in self.command(folder, "baseline", "show", "main")


class BaselineSet(Results):
    """Other runs are pinned under a name that pins one; another name is left alone."""

    def prepare(self, folder: Path) -> None:
        for number in range(2):
            write_run(folder, number)
        self.store(folder)
        for name in ("main", "other"):
            self.command(folder, "baseline", "set", name, run_id(0), "--reason=before")

    def act(self, folder: Path, ended: Ended) -> None:
        self.command(folder, "baseline", "set", "main", run_id(1), "--reason=meant")
        ended("set")

    def again(self, folder: Path) -> None:
        self.act(folder, lambda _: None)

    def look(self, folder: Path, ended: Sequence[str]) -> None:
        super().look(folder, ended)
        baselines = Baselines(folder)
        assert baselines.require("other").runs == (run_id(0),)
        main_one = baselines.require("main")
        assert main_one.runs == main_one.changes[-1].runs
        assert main_one.changes[0].reason == "before"
        if ended:
            assert main_one.runs == (run_id(1),)

    def verify(self, folder: Path, ended: Sequence[str]) -> None:
        assert Baselines(folder).require("main").runs == (run_id(1),)


class Tag(Results):
    """A run that has a tag is given another one."""

    def prepare(self, folder: Path) -> None:
        write_run(folder, 0)
        self.store(folder)
        self.command(folder, "runs", "tag", run_id(0), "before")

    def act(self, folder: Path, ended: Ended) -> None:
        self.command(folder, "runs", "tag", run_id(0), "nightly")
        ended("tagged")

    def again(self, folder: Path) -> None:
        self.act(folder, lambda _: None)

    def look(self, folder: Path, ended: Sequence[str]) -> None:
        super().look(folder, ended)
        (run,) = runs_in(folder)
        assert tags_of(run) in {("before",), ("before", "nightly")}
        assert len(tags_of(run)) == 2 or not ended

    def verify(self, folder: Path, ended: Sequence[str]) -> None:
        (run,) = runs_in(folder)
        assert tags_of(run) == ("before", "nightly")
        (listed,) = json.loads(self.command(folder, "runs", "list", "--format=json"))["runs"]
        assert listed["tags"] == ["before", "nightly"]


class Ingest(Results):
    """Runs are stored: a new one, one that has changed, and one that was killed."""

    def prepare(self, folder: Path) -> None:
        first, second = write_run(folder, 0), write_run(folder, 1, status=None)
        self.store(folder)
        self.command(folder, "runs", "tag", first.run_id, "before", "--registry=none")
        with second.journal.open("a") as lines:
            lines.write('{"schema_version": 1, "event": "tor')
        write_run(folder, 2)

    def act(self, folder: Path, ended: Ended) -> None:
        self.command(folder, "db", "ingest")
        ended("stored")

    def again(self, folder: Path) -> None:
        self.act(folder, lambda _: None)

    def look(self, folder: Path, ended: Sequence[str]) -> None:
        super().look(folder, ended)
        assert len(runs_in(folder)) == 3

    def verify(self, folder: Path, ended: Sequence[str]) -> None:
        assert self.command(folder, "db", "ingest") == "0 stored, 3 already present\n"
        history = json.loads(self.command(folder, "history", MLP, "--format=json"))["histories"]
        assert sum(len(series["points"]) for series in history[0]["segments"]) == 3


class Rebuild(Ingest):
    """The registry is made anew."""

    def act(self, folder: Path, ended: Ended) -> None:
        self.command(folder, "db", "rebuild")
        ended("rebuilt")


SCENARIOS = (Session, Resume, Prune, Accept, BaselineSet, Tag, Ingest, Rebuild)
