"""One launch: pytest in a fresh process, in one side's tree, with a timeout."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

from gpubench_plugin.cli.ab.preflight import Capabilities
from gpubench_plugin.cli.ab.sides import Side
from gpubench_plugin.cli.ab.workspaces import Workspace
from gpubench_plugin.environment.child_process import code_text, last_lines, running
from gpubench_plugin.environment.git import HOOK_VARIABLES

PROBE: Final = "gpubench_ab_probe"
_NO_TESTS: Final = 5  # pytest's ExitCode.NO_TESTS_COLLECTED
_GRACE_S: Final = 10.0
"""From SIGTERM to SIGKILL: long enough to write the journal; not measured."""
_DROPPED: Final = HOOK_VARIABLES | {
    *("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "PYTHONPATH", "GPUBENCH_REGISTRY"),
    *("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_PATH"),
    *("PYTEST_CURRENT_TEST", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"),
}
"""Variables that a launch must not inherit: ours, and those by which CI collects reports."""


@dataclass(frozen=True, kw_only=True)
class LaunchSpec:
    """Specification of one launch.

    `folder` is the launch's own, `leave_out` a file with the benchmarks to deselect, `rounds` one
    with the numbers of rounds.
    """

    side: Side
    folder: Path
    offers: Capabilities
    leave_out: Path | None = None
    rounds: Path | None = None
    timeout_s: float


@dataclass(frozen=True, kw_only=True)
class LaunchOutcome:
    """Outcome of a launch; `error` is empty if it ended normally, whatever its tests did.

    `run` is its run directory, None without benchmarks. `usage_error`: pytest rejected its
    arguments. `last_lines` are the end of its output.
    """

    seconds: float
    code: int
    run: Path | None = None
    error: str = ""
    usage_error: bool = False
    last_lines: tuple[str, ...] = ()


class PytestLauncher:
    """Launches pytest with the same `arguments` on either side."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        workspace: Workspace,
        probe: Path,
        repository: Path | None,
        environ: Mapping[str, str] = os.environ,
    ):
        self._arguments = tuple(arguments)
        self._workspace = workspace
        self._probe = probe
        self._repository = repository
        self._environ = environ

    def command(self, spec: LaunchSpec) -> list[str]:
        """Command line of a launch, using only option names that no other plugin can own."""
        own_options = [f"--gpubench-results-dir={spec.folder / 'results'}"]
        if "registry" in spec.offers.flags:
            own_options.append("--gpubench-registry=none")
        if spec.rounds is not None:
            own_options.append(f"--gpubench-set=measure.rounds_file={spec.rounds}")
        own_options += self._own_caches(spec.side)
        return [spec.side.python, "-m", "pytest", *self._arguments, "-p", PROBE, *own_options]

    def _own_caches(self, side: Side) -> list[str]:
        """Options that move the caches of pytest and pytest-benchmark out of the tree."""
        joined_arguments = " ".join(self._arguments)
        caches = []
        if "no:cacheprovider" not in joined_arguments:
            caches += ["-o", f"cache_dir={self._workspace.cache(side.name)}"]
        if "no:benchmark" not in joined_arguments and "--benchmark-storage" not in joined_arguments:
            caches.append(f"--benchmark-storage=file://{self._workspace.storage}")
        return caches

    def environment(self, side: Side) -> dict[str, str]:
        """The user's environment with the code of `side` first on the path.

        Entries of the user's ``PYTHONPATH`` that lie in the repository mean the same place in
        the side's tree.
        """
        inherited = {k: v for k, v in self._environ.items() if k not in _DROPPED}
        path = [*side.import_roots(), self._probe.parent, *self._user_python_path(side)]
        return {
            **inherited,
            "PYTHONPATH": os.pathsep.join(dict.fromkeys(map(str, path))),
            "PYTHONPYCACHEPREFIX": str(self._workspace.byte_code),
            "GPUBENCH_AB_PARENT": str(os.getpid()),
            "GPUBENCH_AB_TREE": str(side.tree),
        }

    def _user_python_path(self, side: Side) -> list[Path]:
        entries = filter(None, self._environ.get("PYTHONPATH", "").split(os.pathsep))
        paths = [Path(os.path.abspath(entry)) for entry in entries]  # noqa: PTH100 # keeps links
        repository = self._repository
        return [
            side.tree / path.relative_to(repository)
            if repository and path.is_relative_to(repository)
            else path
            for path in paths
        ]

    def launch(self, spec: LaunchSpec) -> LaunchOutcome:
        """Run a launch until it ends or times out; no process of it is left, even after Ctrl-C."""
        report = spec.folder / "report"
        report.mkdir(parents=True)
        environment = {**self.environment(spec.side), "GPUBENCH_AB_REPORT": str(report)}
        if spec.leave_out is not None:
            environment["GPUBENCH_AB_LEAVE_OUT"] = str(spec.leave_out)
        start = monotonic()
        with (
            (spec.folder / "output.txt").open("wb") as output,
            running(
                self.command(spec),
                grace_s=_GRACE_S,
                cwd=spec.side.folder,
                environ=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            ) as child,
        ):
            in_time = child.wait(spec.timeout_s) is not None
        code = child.code or 0
        return _outcome(spec, code, monotonic() - start, in_time=in_time)


def _outcome(spec: LaunchSpec, code: int, seconds: float, *, in_time: bool) -> LaunchOutcome:
    runs = sorted((spec.folder / "results").glob("*/*/metrics.jsonl"))
    run = runs[-1].parent if runs else None
    error = ""
    if not in_time:
        error = f"timed out after {spec.timeout_s:.0f} s and was killed (--launch-timeout)"
    elif code < 0:
        error = code_text(code)
    elif run is not None and not (run / "summary.json").exists():
        error = f"exited with code {code} before its run was complete"
    elif run is None and code not in {0, 1, _NO_TESTS}:
        error = f"exited with code {code} before any benchmark ran"
    return LaunchOutcome(
        seconds=seconds,
        code=code,
        run=run,
        error=error,
        usage_error=in_time and run is None and code == 4,
        last_lines=last_lines(spec.folder / "output.txt"),
    )
