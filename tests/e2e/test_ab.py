"""``gpubench ab`` on a user's repository: interrupted, resumed, judged; and bad input."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.support import paper_clock
from tests.support.git import git

LIBRARY = """
from paper_clock import spend

def work(times):
    spend(1_000 * times)

def broken():
    pass
"""
SLOWER = """
from paper_clock import spend

def work(times):
    spend(1_100 * times)

def broken():
    raise KeyError("renamed")
"""
BENCHMARKS = """
import pytest
import mylib
from paper_clock import spend

pytestmark = pytest.mark.gpubench

def test_same(gpubench):
    gpubench(lambda: spend(100_000))

@pytest.mark.parametrize("kind", ["a b::[c]"])
def test_slow(gpubench, kind):
    gpubench(lambda: mylib.work(100))

def test_breaks(gpubench):
    mylib.broken()
    gpubench(lambda: spend(10_000))
"""
NEW = """
from paper_clock import spend

def test_new(gpubench):
    gpubench(lambda: spend(10_000))
"""
# As an editable install does it: the user's tree at the end of the path.
EDITABLE = "import sys; sys.path.append({0!r})"
QUICK = ("--measure.max_time_s=0.1", "--measure.warmup_s=0.01")


@dataclass
class User:
    """Somebody with a repository, a temporary folder and a package installed from the tree."""

    folder: Path
    repo: Path
    temporary: Path
    environ: dict[str, str] = field(default_factory=dict)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        code = "import sys; from gpubench_plugin.cli.main import main; sys.exit(main())"
        environ = {name: value for name, value in os.environ.items() if name[:7] != "GITHUB_"}
        return subprocess.Popen(
            [sys.executable, "-c", code, "ab", *arguments],
            cwd=self.repo,
            env={**environ, "TMPDIR": str(self.temporary), "OMP_NUM_THREADS": "1", **self.environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ab(self, *arguments: str) -> Ended:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=900)
        return Ended(process.returncode, out, err)

    def git(self, *arguments: str) -> str:
        return git(self.repo, *arguments)

    def state(self) -> dict[str, Any]:
        """All that must stay as it was."""
        files = [p for p in self.repo.rglob("*") if p.is_file() and ".git" not in p.parts]
        return {
            "files": {str(p): sha256(p.read_bytes()).hexdigest() for p in files},
            "status": self.git("status", "--porcelain=v2", "--branch"),
            "stash": self.git("stash", "list"),
            "branches": self.git("branch", "--all", "--verbose"),
            "worktrees": self.git("worktree", "list"),
            "temporary": list(self.temporary.iterdir()),
        }


@dataclass(frozen=True)
class Ended:
    """How ``gpubench ab`` ended, and what it said."""

    code: int
    out: str
    err: str


def make_user(folder: Path) -> User:
    user = User(folder, (folder / "repo").resolve(), folder / "tmp")
    for path in (user.repo / "src/mylib", user.repo / "bench", user.temporary, folder / "site"):
        path.mkdir(parents=True)
    user.git("init", "-q", "-b", "main")
    (user.repo / "pytest.ini").write_text("[pytest]\naddopts = --strict-config\n")
    (user.repo / "src/mylib/__init__.py").write_text(LIBRARY)
    (user.repo / "bench/conftest.py").write_text(paper_clock.CONFTEST)
    (user.repo / "bench/test_it.py").write_text(BENCHMARKS)
    user.git("add", "--all")
    user.git("commit", "-q", "-m", "first")
    paper_clock.write(folder / "site", EDITABLE.format(str(user.repo / "src")))
    user.environ["PYTHONPATH"] = str(folder / "site")
    return user


@dataclass(frozen=True)
class Story:
    """A comparison that was interrupted, killed, and went on."""

    user: User
    folder: Path
    before: Mapping[str, Any]
    interrupted: Ended
    between: Mapping[str, Any]
    resumed: Ended
    after: Mapping[str, Any]
    verdicts: dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """The head is a working tree with a slowdown, a failure and a new benchmark."""
    user = make_user(tmp_path_factory.mktemp("ab"))
    (user.repo / "src/mylib/__init__.py").write_text(SLOWER)
    (user.repo / "bench/test_new.py").write_text(NEW)
    before = user.state()
    results = user.folder / "results"
    options = ("--base=main", "--pairs=5", "--unchanged-from=5", f"--results-dir={results}")
    process = user.start(*options, "--", "bench", *QUICK)
    folder = _interrupt_in_the_first_pair(process, results)
    out, err = process.communicate(timeout=60)
    interrupted, between = Ended(process.returncode, out, err), user.state()
    _kill_in_the_next_launch(user.start(f"--resume={folder}"), folder)
    github = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(user.folder / "page.md")}
    user.environ |= github
    resumed = user.ab(f"--resume={folder}")
    for name in github:
        del user.environ[name]
    document = json.loads((folder / "verdicts.json").read_text()) if resumed.code < 2 else {}
    found = {}
    for verdict in document.get("benchmarks", ()):
        found.setdefault(verdict["id"].rpartition("::")[2].partition("[")[0], verdict)
        if verdict["metric"] == "step_time_min_s":
            found[verdict["id"].partition("::")[2].partition("[")[0]] = verdict
    return Story(user, folder, before, interrupted, between, resumed, user.state(), found)


def _interrupt_in_the_first_pair(process: subprocess.Popen[str], results: Path) -> Path:
    """Press Ctrl-C while the fourth launch runs: half a pair is done."""
    for _ in range(3000):
        found = list(results.glob("ab/*/launches/004-*"))
        if found or process.poll() is not None:
            break
        time.sleep(0.1)
    assert found, process.communicate()
    process.send_signal(signal.SIGINT)
    return found[0].parent.parent


def _kill_in_the_next_launch(process: subprocess.Popen[str], folder: Path) -> None:
    """Go on, and be killed without warning while the fifth launch runs."""
    for _ in range(3000):
        if list(folder.glob("launches/005-*")) or process.poll() is not None:
            break
        time.sleep(0.1)
    launched = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.kill()
    out, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, (out, err)
    while any(Path("/proc", child).exists() for child in launched):  # it ends itself
        time.sleep(0.1)


@pytest.mark.exhaustive
def test_an_interruption_leaves_nothing_behind(story: Story) -> None:
    """No tree, no temporary folder, no change; and the message says how to go on."""
    assert story.interrupted.code == 130, story.interrupted.err
    assert f"interrupted; resume with gpubench ab --resume={story.folder}" in story.interrupted.err
    assert story.between == story.before


@pytest.mark.exhaustive
def test_a_resumed_comparison_measures_what_is_missing(story: Story) -> None:
    """It is warmed up again, the pair that was half done begins again, then all five are there.

    So it is although it was killed in between, which has left nothing behind in the end.
    """
    assert story.resumed.code == 1, story.resumed.err
    state = json.loads((story.folder / "state.json").read_text())
    pairs = [(launch["pair"], launch["side"]) for launch in state["launches"]]
    assert sorted(set(pairs)) == sorted((p, s) for p in range(6) for s in ("base", "head"))
    assert len(pairs) == 15
    assert "warm-up pair (repeated)" in story.resumed.err
    assert story.after == story.before


@pytest.mark.exhaustive
def test_each_benchmark_has_its_verdict(story: Story) -> None:
    """A tenth more work is found; the same code, a new benchmark and a failing one are told apart.

    Neither of the last two stops the others.
    """
    slow, same, new, breaks = (
        story.verdicts[f"test_{name}"] for name in ("slow", "same", "new", "breaks")
    )
    assert slow["verdict"] == "regressed", slow["reason"]
    assert slow["effect"] == pytest.approx(0.1, abs=0.005)
    assert (slow["launches"], bool(slow["reason"])) == (5, True)
    assert (same["verdict"], new["verdict"]) == ("unchanged", "new"), same["reason"]
    assert (breaks["verdict"], "renamed" in breaks["reason"]) == ("errored", True)


@pytest.mark.exhaustive
def test_the_report_names_both_sides(story: Story) -> None:
    """Base with its commit, the head with its uncommitted changes; the verdicts in words."""
    commit = story.user.git("rev-parse", "main")[:9]
    for text in (story.resumed.out, (story.folder / "report.md").read_text()):
        assert f"main ({commit})" in text
        assert "working tree (2 changed files)" in text
        assert "regressed" in text
    assert "1 benchmark failed that the base measured" in story.resumed.out


@pytest.mark.exhaustive
def test_rounds_are_the_same_in_all_judged_launches(story: Story) -> None:
    """They are fixed after the warm-up pair, on both sides."""
    rounds = set()
    for summary in story.folder.glob("launches/*/results/*/*/summary.json"):
        if int(summary.parts[-5][:3]) > 4:
            benchmarks = json.loads(summary.read_text())["benchmarks"]
            (same,) = [b for b in benchmarks if b["name"].startswith("test_same")]
            rounds.add(same["metrics"]["rounds"]["value"])
    assert len(rounds) == 1


@pytest.mark.exhaustive
def test_github_gets_its_page_and_annotations(story: Story) -> None:
    """The slow benchmark is marked in its file; launches write nothing there themselves."""
    page = (story.user.folder / "page.md").read_text()
    assert "regressed" in page
    assert "gpubench ab --base=main --pairs=5 --unchanged-from=5 --results-dir=" in page
    errors = [line for line in story.resumed.out.splitlines() if line.startswith("::error")]
    line = 1 + BENCHMARKS.splitlines().index('@pytest.mark.parametrize("kind", ["a b::[c]"])')
    assert any(f"file=bench/test_it.py,line={line}," in one and "slow" in one for one in errors)


@pytest.mark.exhaustive
def test_other_code_is_not_resumed(story: Story) -> None:
    """After an edit the comparison refuses to go on, naming what differs."""
    file = story.user.repo / "src/mylib/__init__.py"
    text = file.read_text()
    file.write_text(text + "\n# edited\n")
    try:
        ended = story.user.ab(f"--resume={story.folder}")
    finally:
        file.write_text(text)
    assert ended.code == 2
    assert "head.code" in ended.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 2, "--base is required: a git ref or folder"),
        (("--base=mian",), 2, "did you mean 'main'?"),
        (("--base=main", "--unchanged-from=7"), 2, "allowed: 5, 10, 15"),
        (("--base=main", "--format=tabel"), 2, "did you mean 'table'?"),
        (("--base=main", "--launch-timeout=0"), 2, ": '0' is not a positive integer"),
        (("--base=main", "--", "--gate"), 2, "not allowed in the launches"),
        (("--resume=nowhere",), 2, "nowhere: not a `gpubench ab` folder"),
        (("--base=main", "--output=no/such.md"), 2, "--output=no/such.md: not writable"),
        (
            ("--base=main",),
            2,
            "same code and Python: main (",
        ),
    ],
)
def test_bad_input_is_refused_before_anything_is_launched(
    user: User, arguments: tuple[str, ...], code: int, said: str
) -> None:
    """One message, the right exit code, no traceback, and nothing is left."""
    ended = user.ab(*arguments)
    assert (ended.code, said in ended.err, "Traceback" in ended.err) == (code, True, False), ended
    assert not (user.repo / "results").exists()


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> User:
    return make_user(tmp_path_factory.mktemp("user"))


def test_arguments_that_pytest_refuses_are_a_problem_of_usage(user: User) -> None:
    """Its own words are shown; that nothing was selected is another matter, and never fine."""
    results = f"--results-dir={user.folder / 'results'}"
    refused = user.ab("--base=main", "--same", results, "--", "nowhere")
    assert (refused.code, "nowhere" in refused.err) == (2, True), refused
    empty = user.ab("--base=main", "--same", results, "--", "bench", "-k", "nothing")
    assert (empty.code, "no benchmark" in empty.err) == (3, True), empty


def test_the_first_benchmarks_of_a_repository_pass(tmp_path: Path) -> None:
    """The base does not have their folder; the report and GitHub's page say so."""
    user, page = make_user(tmp_path), tmp_path / "page.md"
    user.git("checkout", "-q", "-b", "before")
    user.git("rm", "-rq", "bench")
    user.git("commit", "-q", "-m", "without benchmarks")
    user.git("checkout", "-q", "main")
    user.environ["GITHUB_STEP_SUMMARY"] = str(page)
    results, arguments = f"--results-dir={tmp_path / 'results'}", ("--", "bench", "-k", "same")
    ended = user.ab("--base=before", results, *arguments, *QUICK)
    assert ended.code == 0, ended
    assert "new: same: the base has no such benchmark" in ended.out
    for text in (ended.out, page.read_text()):
        assert "nothing to compare: base and head have no benchmark in common" in text
        assert "environment difference" not in text
