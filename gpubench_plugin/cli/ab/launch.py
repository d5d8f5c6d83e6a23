"""One launch: pytest in a fresh process, in one side's tree, with a timeout."""

from __future__ import annotations

import math
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

from gpubench_plugin.cli.ab.preflight import Capabilities
from gpubench_plugin.cli.ab.sides import Side
from gpubench_plugin.cli.ab.workspaces import Workspace
from gpubench_plugin.environment.child_process import last_lines
from gpubench_plugin.environment.git import HOOK_VARIABLES
from gpubench_plugin.environment.timeout_clock import TimeoutClock, is_stopped, poll_interval_s
from gpubench_plugin.launchers.signals import signals_deferred, signals_ignored

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
        output, start = spec.folder / "output.txt", monotonic()
        with output.open("wb") as file:
            process: subprocess.Popen[bytes] | None = None
            try:
                with signals_deferred():
                    process = subprocess.Popen(
                        self.command(spec),
                        cwd=spec.side.folder,
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=file,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                in_time = _wait(process, spec.timeout_s)
            finally:
                code = 0 if process is None else _terminate(process)
        return _outcome(spec, code, monotonic() - start, in_time=in_time)


def _wait(process: subprocess.Popen[bytes], timeout_s: float) -> bool:
    """Wait with rare wake-ups, so as not to disturb the measurement; does not reap.

    Time in which the process, or this one, is stopped does not count.
    """
    if sys.platform != "linux":
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout_s)
        return process.poll() is not None
    descriptor = os.pidfd_open(process.pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        clock = TimeoutClock(stopped=lambda: is_stopped(process.pid))
        has_ended, remaining_s = False, math.inf
        while remaining_s > 0 and not has_ended:
            remaining_s = clock.remaining(timeout_s)
            has_ended = bool(poll.poll(poll_interval_s(remaining_s) * 1e3))
        return has_ended
    finally:
        os.close(descriptor)


def _terminate(process: subprocess.Popen[bytes]) -> int:
    """Terminate the process group, first by SIGTERM, and reap the process.

    A second signal to this process kills it at once.
    """
    try:
        if not _wait(process, 0.0):
            process.terminate()
            _wait(process, _GRACE_S)
    finally:
        with signals_ignored():
            # Not reaped yet, so its process id is not reused.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
    return code


def _outcome(spec: LaunchSpec, code: int, seconds: float, *, in_time: bool) -> LaunchOutcome:
    runs = sorted((spec.folder / "results").glob("*/*/metrics.jsonl"))
    run = runs[-1].parent if runs else None
    error = ""
    if not in_time:
        error = f"timed out after {spec.timeout_s:.0f} s and was killed (--launch-timeout)"
    elif code < 0:
        error = f"was killed by {_signal_name(-code)}"
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


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
