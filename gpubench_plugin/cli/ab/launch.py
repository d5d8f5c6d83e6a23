"""One launch: pytest in a fresh process, in one side's tree; which Python and code it uses."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Final

from gpubench_plugin.cli.ab import launch_plugin
from gpubench_plugin.cli.ab.saved_state import LaunchRecord
from gpubench_plugin.cli.ab.sides import Side
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.environment.code import HOOK_VARIABLES
from gpubench_plugin.system import child_process
from gpubench_plugin.system.child_process import ChildError, facts_of

_PROBE: Final = "gpubench_ab_probe"
_NO_TESTS: Final = 5  # pytest's ExitCode.NO_TESTS_COLLECTED
_USAGE_ERROR: Final = 4
# From SIGTERM to SIGKILL: long enough to write the journal.
_GRACE_S: Final = 10.0
# Variables that a launch must not inherit: ours, and those by which CI collects reports.
_DROPPED: Final = HOOK_VARIABLES | {
    *("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "PYTHONPATH", "GPUBENCH_REGISTRY"),
    *("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_PATH"),
    *("PYTEST_CURRENT_TEST", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"),
}


@dataclass(frozen=True, kw_only=True)
class PytestProcess:
    """pytest with the same `arguments` on either side, in a fresh process for each launch.

    Entries of the user's ``PYTHONPATH`` that lie in the `repository` mean the same place in the
    side's tree.
    """

    arguments: Sequence[str]
    workspace: Path
    repository: Path | None
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def command(self, side: Side, folder: Path, rounds: Path | None = None) -> list[str]:
        """Command line of a launch, using only option names that no other plugin can own."""
        options = [
            f"--gpubench-results-dir={folder / 'results'}",
            "--gpubench-registry=none",
            *([] if rounds is None else [f"--gpubench-set=measure.rounds_file={rounds}"]),
            *self._own_caches(side),
        ]
        return [side.python, "-m", "pytest", *self.arguments, "-p", _PROBE, *options]

    def _own_caches(self, side: Side) -> list[str]:
        """Options that move the caches of pytest and pytest-benchmark out of the tree."""
        joined_arguments = " ".join(self.arguments)
        caches = []
        if "no:cacheprovider" not in joined_arguments:
            caches += ["-o", f"cache_dir={self.workspace / f'pytest-cache-{side.name}'}"]
        if "no:benchmark" not in joined_arguments and "--benchmark-storage" not in joined_arguments:
            caches.append(f"--benchmark-storage=file://{self.workspace / 'benchmarks'}")
        return caches

    def environment(self, side: Side) -> dict[str, str]:
        """The user's environment with the code of `side` first on the path."""
        inherited = {k: v for k, v in self.environ.items() if k not in _DROPPED}
        path = [*side.import_roots(), self._probe_folder(), *self._user_python_path(side)]
        return {
            **inherited,
            "PYTHONPATH": os.pathsep.join(dict.fromkeys(map(str, path))),
            # Of both sides: it is keyed by the path of the source.
            "PYTHONPYCACHEPREFIX": str(self.workspace / "pycache"),
            "GPUBENCH_AB_PARENT": str(os.getpid()),
            "GPUBENCH_AB_TREE": str(side.tree),
            "GPUBENCH_AB_SIDE": side.name,
        }

    def _probe_folder(self) -> Path:
        """Folder of a private copy of the probe plugin, made on first use."""
        file = self.workspace / "probe" / f"{_PROBE}.py"
        if not file.exists():
            file.parent.mkdir(parents=True)
            shutil.copyfile(launch_plugin.__file__, file)
        return file.parent

    def _user_python_path(self, side: Side) -> list[Path]:
        entries = filter(None, self.environ.get("PYTHONPATH", "").split(os.pathsep))
        paths = [Path(os.path.abspath(entry)) for entry in entries]  # noqa: PTH100 # keeps links
        top = self.repository
        return [
            side.tree / path.relative_to(top) if top and path.is_relative_to(top) else path
            for path in paths
        ]

    def launch(
        self,
        side: Side,
        folder: Path,
        *,
        timeout_s: float,
        leave_out: Sequence[str] = (),
        rounds: Path | None = None,
    ) -> LaunchRecord:
        """Launch pytest for `side` and wait until it ends or times out; nothing of it is left.

        `folder` is the launch's own, `leave_out` the benchmarks to deselect, `rounds` a file with
        the numbers of rounds.
        """
        report = folder / "report"
        report.mkdir(parents=True)
        left_out = folder / "left-out.json"
        left_out.write_text(json.dumps(leave_out), encoding="utf-8")
        files = {"GPUBENCH_AB_REPORT": str(report), "GPUBENCH_AB_LEAVE_OUT": str(left_out)}
        environ = {**self.environment(side), **files}
        command, start = self.command(side, folder, rounds), monotonic()
        output = folder / "output.txt"
        with child_process.running(
            command, grace_s=_GRACE_S, cwd=side.folder, environ=environ, output=output
        ) as child:
            code = child.wait(timeout_s)
        seconds = monotonic() - start
        return _record(LaunchRecord(side=side.name, seconds=seconds), folder, code, timeout_s)


def _record(launch: LaunchRecord, folder: Path, code: int | None, timeout_s: float) -> LaunchRecord:
    """The `launch` with what came of it in `folder`; the `code` is None after the timeout."""
    runs = sorted((folder / "results").glob("*/*/metrics.jsonl"))
    run = runs[-1].parent if runs else None
    problem = ""
    if code is None:
        problem = f"timed out after {timeout_s:.0f} s and was killed (--launch-timeout)"
    elif code < 0:
        problem = child_process.code_text(code)
    elif run is not None and not (run / "summary.json").exists():
        problem = f"exited with code {code} before its run was complete"
    elif run is None and code not in {0, 1, _NO_TESTS}:
        problem = f"exited with code {code} before any benchmark ran"
    return replace(
        launch,
        run="" if run is None else str(run.relative_to(folder)),
        problem=problem,
        usage_error=run is None and code == _USAGE_ERROR,
    )


_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})


@dataclass(frozen=True, kw_only=True)
class ImportReport:
    """Imports and test locations reported by the processes of a launch.

    `modules` holds each module's file, `tests` each test's file below the side's tree and its
    line, from 1, or where it failed. `rootdirs` are pytest's, whose commit a run records.
    """

    modules: dict[str, Path] = field(default_factory=dict)
    tests: dict[str, tuple[str, int]] = field(default_factory=dict)
    rootdirs: set[Path] = field(default_factory=set)


def imports(folder: Path, side: Side) -> ImportReport:
    """Read what :mod:`.launch_plugin` reported of the launch of `side` in `folder`."""
    report = ImportReport()
    for part in sorted((folder / "report").glob("*.json")):
        data = json.loads(part.read_text(encoding="utf-8"))
        report.modules.update((name, _real(path, side)) for name, path in data["modules"].items())
        report.tests.update((i, (file, line)) for i, (file, line) in data["tests"].items())
        report.rootdirs.add(_real(data["rootdir"], side))
    return report


def _real(file: str, side: Side) -> Path:
    return Path(os.path.realpath(side.folder / file))


def require_own_code(
    side: Side, other: Side, modules: Mapping[str, Path], repository: Path | None
) -> None:
    """Refuse a launch of `side` that imported its packages from elsewhere.

    That is code from the tree of `other`, or from the working tree of the `repository`; or a
    package at the top of `side`'s tree that was imported from another place.

    Raises:
        UsageProblem: the message names the package and the place.
    """
    tree = side.tree.resolve()
    # One tree may lie inside the other; files of the inner one are its own.
    other_trees = {t.resolve() for t in (other.tree, repository) if t is not None} - {tree}
    own_packages = {
        p.parent.name for root in side.import_roots() for p in root.glob("*/__init__.py")
    }
    for name, file in modules.items():
        nested = any(t.is_relative_to(tree) and file.is_relative_to(t) for t in other_trees)
        if file.is_relative_to(tree) and not nested:
            continue
        package = name.partition(".")[0]
        in_environment = not _INSTALLED.isdisjoint(file.parts)
        if (package in own_packages) or (
            not in_environment and any(file.is_relative_to(t) for t in other_trees)
        ):
            raise UsageProblem(
                f"both sides import {package} from {file.parent}, so both would measure the same "
                f"code, while the {side.name}'s copy is in {side.tree}. Its Python finds an "
                "installed package first; give each side its own environment with --base-python "
                "and --head-python, or put the folder of the package first in PYTHONPATH"
            )


_QUERY: Final = (
    "import gpubench_plugin, json, platform, pytest; print(json.dumps(platform.python_version()))"
)


def python_version(side: Side, environ: Mapping[str, str]) -> str:
    """Version of the Python of `side`.

    Raises:
        UsageProblem: it does not respond, or has no pytest or no gpubench.
    """
    try:
        return str(facts_of([side.python, "-c", _QUERY], environ, cwd=side.folder))
    except ChildError as error:
        option = f"--{side.name}-python"
        raise UsageProblem(f"{option}: {side.python} does not answer: {error}") from error
