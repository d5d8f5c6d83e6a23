"""One launch: pytest in a fresh process, in one side's tree, with a timeout."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import STDOUT
from time import monotonic
from typing import Final

from gpubench_plugin.cli.ab import launch_plugin
from gpubench_plugin.cli.ab.sides import Side
from gpubench_plugin.cli.ab.state import LaunchOutcome
from gpubench_plugin.cli.ab.workspaces import Workspace
from gpubench_plugin.environment import child_process
from gpubench_plugin.environment.code import HOOK_VARIABLES

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
    workspace: Workspace
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
            caches += ["-o", f"cache_dir={self.workspace.path / f'pytest-cache-{side.name}'}"]
        if "no:benchmark" not in joined_arguments and "--benchmark-storage" not in joined_arguments:
            caches.append(f"--benchmark-storage=file://{self.workspace.path / 'benchmarks'}")
        return caches

    def environment(self, side: Side) -> dict[str, str]:
        """The user's environment with the code of `side` first on the path."""
        inherited = {k: v for k, v in self.environ.items() if k not in _DROPPED}
        path = [*side.import_roots(), self._probe_folder(), *self._user_python_path(side)]
        return {
            **inherited,
            "PYTHONPATH": os.pathsep.join(dict.fromkeys(map(str, path))),
            # Of both sides: it is keyed by the path of the source.
            "PYTHONPYCACHEPREFIX": str(self.workspace.path / "pycache"),
            "GPUBENCH_AB_PARENT": str(os.getpid()),
            "GPUBENCH_AB_TREE": str(side.tree),
        }

    def _probe_folder(self) -> Path:
        """Folder of a private copy of the probe plugin, made on first use."""
        file = self.workspace.path / "probe" / f"{_PROBE}.py"
        if not file.exists():
            file.parent.mkdir(parents=True)
            shutil.copyfile(launch_plugin.__file__, file)
        return file.parent

    def _user_python_path(self, side: Side) -> list[Path]:
        entries = filter(None, self.environ.get("PYTHONPATH", "").split(os.pathsep))
        paths = [Path(os.path.abspath(entry)) for entry in entries]  # noqa: PTH100 # keeps links
        repository = self.repository
        return [
            side.tree / path.relative_to(repository)
            if repository and path.is_relative_to(repository)
            else path
            for path in paths
        ]

    def launch(
        self,
        side: Side,
        folder: Path,
        *,
        timeout_s: float,
        leave_out: Path | None = None,
        rounds: Path | None = None,
    ) -> LaunchOutcome:
        """Launch pytest for `side` and wait until it ends or times out; nothing of it is left.

        `folder` is the launch's own, `leave_out` a file with the benchmarks to deselect, `rounds`
        one with the numbers of rounds.
        """
        report = folder / "report"
        report.mkdir(parents=True)
        environ = {**self.environment(side), "GPUBENCH_AB_REPORT": str(report)}
        if leave_out is not None:
            environ["GPUBENCH_AB_LEAVE_OUT"] = str(leave_out)
        command, start = self.command(side, folder, rounds), monotonic()
        with (
            (folder / "output.txt").open("wb") as output,
            child_process.running(
                command,
                grace_s=_GRACE_S,
                cwd=side.folder,
                environ=environ,
                stdout=output,
                stderr=STDOUT,
            ) as child,
        ):
            code = child.wait(timeout_s)
        return _outcome(folder, code, monotonic() - start, timeout_s)


def _outcome(folder: Path, code: int | None, seconds: float, timeout_s: float) -> LaunchOutcome:
    """Outcome of the launch in `folder`; the `code` is None after the timeout."""
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
    return LaunchOutcome(
        seconds=seconds,
        run="" if run is None else str(run.relative_to(folder)),
        problem=problem,
        usage_error=run is None and code == _USAGE_ERROR,
    )
