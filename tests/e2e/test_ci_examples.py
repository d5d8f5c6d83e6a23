"""The workflows in ``docs/examples``: they are read, and their commands run in a small project."""

from __future__ import annotations

import os
import re
import shlex
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gpubench_plugin.cli import main
from tests.support import paper_clock, workflows
from tests.support.documents import GUIDE, ROOT, blocks
from tests.support.git import git
from tests.support.projects import Project

if TYPE_CHECKING:
    from collections.abc import Mapping

EXAMPLES = sorted((ROOT / "docs" / "examples" / "ci").glob("benchmarks-*.yml"))
GITLAB = ROOT / "docs" / "examples" / "ci" / "gitlab-ci.yml"
PINNING = ("cached-measure", "hosted-night", "postgresql-measure")
VALUES = {
    "$PROFILE": "quick",
    "$RUN": "results/ci/some",
    "$GITHUB_RUN_ID": "7",
    "$HOME/$KEPT": "results",
    "$MACHINE": "a100",
    "$TIME": "20m",
}

LIBRARY = "from paper_clock import spend\n\n\ndef work():\n    spend({})\n"
BRIEFLY = ("--measure.max_time_s=0.1", "--measure.warmup_s=0.01")
BENCHMARK = "import mylib\n\n\ndef test_work(gpubench):\n    gpubench(mylib.work)\n"
NEW = "import mylib\n\n\ndef test_new(gpubench):\n    gpubench(mylib.work)\n"


def _workflow(path: Path) -> dict[Any, Any]:
    loaded: dict[Any, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return loaded


def _jobs_of_gitlab() -> dict[str, dict[str, Any]]:
    """Its jobs, as GitHub's workflows have them."""
    return {
        f"gitlab-{name}": {"steps": [{"run": line} for line in job["script"]]}
        for name, job in _workflow(GITLAB).items()
        if "script" in job
    }


JOBS: dict[str, dict[str, Any]] = {
    f"{path.stem.removeprefix('benchmarks-')}-{name}": job
    for path in EXAMPLES
    for name, job in _workflow(path)["jobs"].items()
} | _jobs_of_gitlab()

each_job = pytest.mark.parametrize("key", JOBS)
each_measuring_job = pytest.mark.parametrize(
    "key", [key for key in JOBS if key != "hosted-comment"]
)


@pytest.mark.parametrize("name", ["cached", "postgresql"])
def test_workflow_gates_pull_requests_and_measures_in_full_at_night(name: str) -> None:
    """It runs on main, on pull requests and at night, with the profile for each."""
    (workflow,) = (_workflow(path) for path in EXAMPLES if name in path.stem)
    assert {"push", "pull_request", "schedule"} <= workflow[True].keys()  # YAML reads `on` so
    assert "'full' || 'quick'" in workflow["env"]["PROFILE"]
    (command,) = workflows.commands(workflow["jobs"]["measure"], "pytest", VALUES)
    assert "--gate" in command


def test_first_workflow_of_the_guide_compares_both_versions_of_a_pull_request() -> None:
    """It has the history that this takes, and keeps what each launch printed."""
    first = re.search(r"examples/ci/([\w-]+\.yml)", (GUIDE / "ci.md").read_text(encoding="utf-8"))
    assert first is not None
    assert first[1] == "benchmarks-hosted.yml"
    steps = JOBS["hosted-change"]["steps"]
    assert steps[0]["with"]["fetch-depth"] == 0
    (kept,) = (s for s in steps if s.get("with", {}).get("path") == "results/ab")
    assert kept["if"] == "always()"
    assert _workflow(GITLAB)["variables"]["GIT_DEPTH"] == 0


def test_actions_have_the_versions_of_our_own_workflows() -> None:
    """A copied workflow begins with those that are current here."""
    used = re.compile(r"uses: (actions/[\w/-]+)@(?:[0-9a-f]{40} # )?v(\d+)")
    own = {
        found
        for path in (ROOT / ".github" / "workflows").glob("*.yml")
        for found in used.findall(path.read_text(encoding="utf-8"))
    }
    texts = [path.read_text(encoding="utf-8") for path in EXAMPLES]
    assert {found for text in texts for found in used.findall(text)} <= own
    assert sum(text.count("uses: ") for text in texts) == len(used.findall("".join(texts)))


def test_what_is_installed_exists() -> None:
    """Each extra that an example names is one of the package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].keys()
    for path in (*EXAMPLES, GITLAB):
        named = re.findall(r"pip install '?pytest-gpubench(?:\[([\w,]+)\])?", path.read_text())
        assert named
        assert {name for names in named for name in names.split(",") if name} <= extras


@each_job
def test_scripts_are_valid_shell_without_expressions(key: str) -> None:
    """Bash can read every step; values of GitHub reach it by variables, which inject no code."""
    assert workflows.problems_of_shell(JOBS[key]) == ""
    assert "${{" not in "".join(workflows.scripts(JOBS[key]))


@each_measuring_job
def test_gpubench_takes_the_command_lines(key: str) -> None:
    """Every command of gpubench in it is one that its parser takes."""
    commands = workflows.commands(JOBS[key], "gpubench", VALUES)
    assert commands
    for command in commands:
        assert main.build_parser().parse_args(command).command is not None


@each_job
def test_pytest_takes_the_command_lines(key: str, project: Project) -> None:
    """Every command of pytest in it collects a project's benchmarks, with every option known."""
    project.write("benchmarks/test_it.py", "def test_x(gpubench):\n    gpubench(lambda: None)\n")
    for command in workflows.commands(JOBS[key], "pytest", VALUES):
        run = project.run("--collect-only", "-q", *command, quick=False)
        assert run.code == 0, run.out + run.err
        assert "test_x" in run.out


def test_gpubench_takes_the_command_lines_of_the_guide() -> None:
    """Those of the page on CI, which are copied as well."""
    texts = [block.text for block in blocks(GUIDE / "ci.md") if block.language == "bash"]
    steps = {"steps": [{"run": re.sub(r" +#.*", "", text)} for text in texts]}
    assert workflows.problems_of_shell(steps) == ""
    commands = workflows.commands(steps, "gpubench", {})
    assert {command[0] for command in commands} >= {"ab", "compare"}
    for command in commands:
        assert main.build_parser().parse_args(command).command is not None


@pytest.mark.parametrize("code", [0, 2, 4])
@pytest.mark.parametrize("key", PINNING)
def test_a_baseline_is_pinned_only_by_whoever_knows_that_it_is_missing(
    key: str, code: int, tmp_path: Path
) -> None:
    """One command decides that, with this job's run; where it fails, the step does."""
    calls, program = tmp_path / "calls", tmp_path / "bin" / "gpubench"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {shlex.quote(str(calls))}\nexit {code}\n')
    program.chmod(0o755)
    kept = "kept" if key == "postgresql-measure" else "results"
    experiment = "night" if key == "hosted-night" else "ci"
    runs = [f"20260101T00000{n}Z_{word}_00000{n}" for n, word in enumerate(("7", "7"))]
    for run in (*runs, "20250101T000000Z_6_000000"):
        (tmp_path / kept / experiment / run).mkdir(parents=True)
    environ = {
        "HOME": str(tmp_path),
        "KEPT": "kept",
        "MACHINE": "a100",
        "GITHUB_RUN_ID": "7",
        "PROFILE": "quick",
        "PATH": f"{program.parent}:{os.environ['PATH']}",
    }
    (script,) = (text for text in workflows.scripts(JOBS[key]) if "--if-missing" in text)
    assert workflows.run(script, tmp_path, environ).returncode == code
    (call,) = calls.read_text().splitlines()
    name = {"hosted-night": "night", "postgresql-measure": "quick-a100"}.get(key, "quick")
    assert call.startswith(f"baseline set --if-missing {name} ")
    assert f"/{runs[-1]}/ " in call


def test_comment_is_written_by_a_job_that_runs_nothing_of_the_pull_request() -> None:
    """It alone may write, for branches of the repository itself; it has no code to run."""
    workflow = _workflow(ROOT / "docs" / "examples" / "ci" / "benchmarks-hosted.yml")
    assert workflow["permissions"] == {"contents": "read"}
    assert "pull_request_target" not in workflow[True]
    writers = {name for name, job in workflow["jobs"].items() if "permissions" in job}
    assert writers == {"comment"}
    job = workflow["jobs"]["comment"]
    assert job["permissions"] == {"pull-requests": "write"}
    assert "github.event.pull_request.head.repo.full_name == github.repository" in job["if"]
    used = [re.sub("@.*", "", step.get("uses", "")) for step in job["steps"]]
    assert used == ["actions/download-artifact", ""]
    programs = {
        words[0] for text in workflows.scripts(job) for words in map(str.split, text.splitlines())
    }
    assert programs == {
        "{",
        "issues=repos/$GITHUB_REPOSITORY/issues",
        "own='.[]",
        "id=$(gh",
        "if",
        "gh",
        "else",
        "fi",
    }


def test_comment_waits_for_a_comparison_and_not_for_its_page() -> None:
    """A page that could not be made fails the job that compares, and costs no comment."""
    change, comment = JOBS["hosted-change"], JOBS["hosted-comment"]
    assert change["outputs"]["page"] == "${{ steps.page.outcome }}"
    (step,) = (step for step in change["steps"] if step.get("id") == "page")
    assert "hashFiles('results/ab/*/report.md')" in step["if"]
    wanted = 'contains(fromJSON(\'["success", "failure"]\'), needs.change.outputs.page)'
    assert wanted in comment["if"]
    assert "outputs.report" not in comment["if"]


@pytest.mark.parametrize("page", ["", "https://example.org/a"])
@pytest.mark.parametrize(
    ("known", "call"), [("", "POST issues/7/comments"), ("12\n34", "PATCH issues/comments/34")]
)
def test_comment_is_posted_once_and_then_renewed(
    known: str, call: str, page: str, tmp_path: Path
) -> None:
    """The one that begins with the marker; its text begins with marker and headline."""
    program = tmp_path / "bin" / "gh"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "$@" >> calls\ncase "$*" in *--paginate*) printf \'{known}\';; esac\n'
    )
    program.chmod(0o755)
    report = tmp_path / "change" / "20260101T000000Z_ab_000000" / "report.md"
    report.parent.mkdir(parents=True)
    report.write_text("## 🔴 1 regressed\n")
    environ = {
        "GITHUB_REPOSITORY": "org/it",
        "NUMBER": "7",
        "REPORT": page,
        "PATH": f"{program.parent}:{os.environ['PATH']}",
    }
    (script,) = workflows.scripts(JOBS["hosted-comment"])
    done = workflows.run(script, tmp_path, environ)
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "comment.md").read_text() == (
        f"<!-- gpubench -->\n## 🔴 1 regressed\n\n{page and f'[Report]({page})'}\n"
    )
    asked, posted = (tmp_path / "calls").read_text().splitlines()
    assert asked.startswith("api --paginate repos/org/it/issues/7/comments --jq .[] | select(")
    method, place = call.split()
    assert posted == f"api --method {method} repos/org/it/{place} --field body=@comment.md"


@dataclass
class Runner:
    """A machine with the clone of a project at `folder`, whose work takes what its clock says."""

    folder: Path
    environ: dict[str, str]
    output: list[str] = field(default_factory=list)

    def commit(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            (self.folder / name).write_text(text)
        git(self.folder, "add", "--all")
        git(self.folder, "commit", "--quiet", "--message=changed")

    def run(self, key: str, *, on_main: bool = True, **variables: str) -> int:
        """Run a job's steps but the installation; returns the code of the one that failed, or 0."""
        self.output, code = [], 0
        for step in JOBS[key]["steps"]:
            condition = step.get("if", "")
            is_left_out = "refs/heads/main" in condition and not on_main
            if "run" not in step or "pip install" in step["run"] or is_left_out:
                continue
            if code and "always()" not in condition:
                continue
            done = workflows.run(step["run"], self.folder, self.environ | variables)
            self.output.append(f"$ {step['run']}\n{done.stdout}")
            if step.get("continue-on-error") is not True:
                code = code or done.returncode
        return code

    @property
    def printed(self) -> str:
        return "\n".join(self.output)

    def gpubench(self, *words: str) -> str:
        done = workflows.run(shlex.join(["gpubench", *words]), self.folder, self.environ)
        assert done.returncode == 0, done.stdout
        return done.stdout


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    """On a branch of a project whose branch ``main`` is on the server."""
    site, origin, folder = (tmp_path / name for name in ("site", "origin", "clone"))
    site.mkdir()
    paper_clock.write(site)
    (origin / "benchmarks").mkdir(parents=True)
    (origin / "benchmarks" / "conftest.py").write_text(paper_clock.CONFTEST)
    (origin / "benchmarks" / "test_it.py").write_text(BENCHMARK)
    (origin / "mylib.py").write_text(LIBRARY.format(100_000))
    (origin / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    (origin / ".gitignore").write_text("results/\n__pycache__/\nbenchmarks.xml\n")
    git(origin, "init", "--quiet", "--initial-branch=main")
    git(origin, "add", "--all")
    git(origin, "commit", "--quiet", "--message=first")
    git(origin, "clone", "--quiet", str(origin), str(folder))
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("GITHUB", "CI"))}
    environ = {
        **inherited,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH", "")))),
        "PYTEST_ADDOPTS": " ".join((os.environ["PYTEST_ADDOPTS"], *BRIEFLY)),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "BASE": "origin/main",
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": git(folder, "rev-parse", "HEAD"),
        "PROFILE": "quick",
        "TIME": "1s",
    }
    return Runner(folder, environ)


@pytest.mark.parametrize(
    "key", ["hosted-change", pytest.param("gitlab-change", marks=pytest.mark.exhaustive)]
)
def test_a_change_that_is_slower_fails(key: str, runner: Runner) -> None:
    """Against the commit that its branch starts from, with nothing known of earlier runs."""
    runner.commit({"mylib.py": LIBRARY.format(130_000)})
    assert runner.run(key) == 1, runner.printed
    assert "1 regressed" in runner.printed
    assert [*runner.folder.glob("results/ab/*/report.md")]
    if key == "hosted-change":
        page = (runner.folder / "report.html").read_text(encoding="utf-8")
        assert "work regressed: step_time" in page


@pytest.mark.exhaustive
def test_a_change_that_is_not_slower_passes(runner: Runner) -> None:
    """Beside a new benchmark, which has no base yet."""
    changed = f"{LIBRARY.format(100_000)}# changed\n"
    runner.commit({"mylib.py": changed, "benchmarks/test_new.py": NEW})
    assert runner.run("hosted-change") == 0, runner.printed
    assert "regressed" not in runner.printed


def test_main_and_pull_requests_share_what_is_cached(runner: Runner) -> None:
    """Main is pinned, a pull request is not, and a job accepts what main has become."""
    assert runner.run("cached-measure") == 0, runner.printed
    assert "quick" in runner.gpubench("baseline", "list")
    assert runner.run("cached-measure", on_main=False) == 0, runner.printed
    assert "cannot judge yet (the baseline needs " in runner.printed
    wanted = {"BENCHMARK": "test_work", "REASON": "a better answer"}
    assert runner.run("cached-accept", **wanted) == 0, runner.printed
    assert "a better answer" in runner.gpubench("baseline", "show", "quick")


@pytest.mark.parametrize("key", ["hosted-night", "gitlab-night"])
def test_first_night_is_pinned(key: str, runner: Runner) -> None:
    """By the job that measured it, which passes."""
    assert runner.run(key) == 0, runner.printed
    assert "night" in runner.gpubench("baseline", "list")


@pytest.mark.exhaustive
def test_gate_fails_after_ten_nights(runner: Runner) -> None:
    """The ten are pinned, and what is slower in the eleventh fails the job."""
    for _ in range(10):
        assert runner.run("hosted-night") == 0, runner.printed
    assert "the first ten nights" in runner.gpubench("baseline", "show", "night")
    runner.commit({"mylib.py": LIBRARY.format(150_000)})
    assert runner.run("hosted-night") == 1, runner.printed
    assert "gate: failed: 1 benchmark" in runner.printed
