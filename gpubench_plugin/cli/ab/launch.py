"""One launch: pytest in a fresh process, in the tree of a side, bounded in time."""

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

from gpubench_plugin.cli.ab.preflight import Offers
from gpubench_plugin.cli.ab.sides import Side
from gpubench_plugin.cli.ab.workspaces import Workspace
from gpubench_plugin.environment import OF_HOOKS, WakingClock, is_stopped, nap_s
from gpubench_plugin.launchers import deferred, unheard

PROBE: Final = "gpubench_ab_probe"
_NO_TESTS: Final = 5
_FAREWELL_S: Final = 10.0
"""From the request to end until the process is killed: it writes down what it has."""
_SHOWN_LINES: Final = 15
_SHOWN_BYTES: Final = 16_384
_DROPPED: Final = OF_HOOKS | {
    *("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "PYTHONPATH", "GPUBENCH_REGISTRY"),
    *("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_PATH"),
    *("PYTEST_CURRENT_TEST", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"),
}
"""Variables that a launch must not see: ours, and those by which CI collects what a job says."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What one launch is to do.

    `folder` is the launch's own, `leave_out` a file with the benchmarks that do not run, `rounds`
    one with their numbers of rounds, `timeout_s` how long the launch may take.
    """

    side: Side
    folder: Path
    offers: Offers
    leave_out: Path | None = None
    rounds: Path | None = None
    timeout_s: float


@dataclass(frozen=True, kw_only=True)
class Launched:
    """How a launch ended. `problem` is empty where it ended in order, whatever its tests did.

    `run` is the run directory it left; a launch without a benchmark leaves none. `refused` says
    that pytest did not understand its arguments, `last_lines` how its output ended.
    """

    seconds: float
    code: int
    run: Path | None = None
    problem: str = ""
    refused: bool = False
    last_lines: tuple[str, ...] = ()


class Launcher:
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

    def command(self, order: Order) -> list[str]:
        """The command of a launch; only names of options that nobody else can own are used."""
        ours = [f"--gpubench-results-dir={order.folder / 'results'}"]
        if "registry" in order.offers.flags:
            ours.append("--gpubench-registry=none")
        if order.rounds is not None:
            ours.append(f"--gpubench-set=measure.rounds_file={order.rounds}")
        ours += self._own_caches(order.side)
        return [order.side.python, "-m", "pytest", *self._arguments, "-p", PROBE, *ours]

    def _own_caches(self, side: Side) -> list[str]:
        """Where pytest and pytest-benchmark keep what they would keep in the tree."""
        given = " ".join(self._arguments)
        caches = []
        if "no:cacheprovider" not in given:
            caches += ["-o", f"cache_dir={self._workspace.cache(side.name)}"]
        if "no:benchmark" not in given and "--benchmark-storage" not in given:
            caches.append(f"--benchmark-storage=file://{self._workspace.storage}")
        return caches

    def environment(self, side: Side) -> dict[str, str]:
        """The user's environment, with the code of `side` before all other.

        Entries of the user's ``PYTHONPATH`` that lie in the repository mean the same place in
        the side's tree.
        """
        inherited = {k: v for k, v in self._environ.items() if k not in _DROPPED}
        path = [*side.import_roots(), self._probe.parent, *self._users_path(side)]
        return {
            **inherited,
            "PYTHONPATH": os.pathsep.join(dict.fromkeys(map(str, path))),
            "PYTHONPYCACHEPREFIX": str(self._workspace.byte_code),
            "GPUBENCH_AB_PARENT": str(os.getpid()),
            "GPUBENCH_AB_TREE": str(side.tree),
        }

    def _users_path(self, side: Side) -> list[Path]:
        entries = filter(None, self._environ.get("PYTHONPATH", "").split(os.pathsep))
        paths = [Path(os.path.abspath(entry)) for entry in entries]  # noqa: PTH100 # keeps links
        top = self._repository
        return [
            side.tree / path.relative_to(top) if top and path.is_relative_to(top) else path
            for path in paths
        ]

    def launch(self, order: Order) -> Launched:
        """Run it to its end, or until its time is over.

        However this ends, by a Ctrl-C too, no process of the launch is left.
        """
        report = order.folder / "report"
        report.mkdir(parents=True)
        environment = {**self.environment(order.side), "GPUBENCH_AB_REPORT": str(report)}
        if order.leave_out is not None:
            environment["GPUBENCH_AB_LEAVE_OUT"] = str(order.leave_out)
        output, start = order.folder / "output.txt", monotonic()
        with output.open("wb") as file:
            process: subprocess.Popen[bytes] | None = None
            try:
                with deferred():
                    process = subprocess.Popen(
                        self.command(order),
                        cwd=order.side.folder,
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=file,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                in_time = _ends_within(process, order.timeout_s)
            finally:
                code = 0 if process is None else _end(process)
        return _ending(order, code, monotonic() - start, in_time=in_time)


def _ends_within(process: subprocess.Popen[bytes], timeout_s: float) -> bool:
    """Wait, and wake up rarely: what is measured has the machine to itself. It is not reaped.

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
        clock = WakingClock(stopped=lambda: is_stopped(process.pid))
        ended, left = False, math.inf
        while left > 0 and not ended:
            left = clock.left(timeout_s)
            ended = bool(poll.poll(nap_s(left) * 1e3))
        return ended
    finally:
        os.close(descriptor)


def _end(process: subprocess.Popen[bytes]) -> int:
    """End the process if it has not ended, politely first, and what it has left in its group.

    Who asks a second time, by whatever signal, does not wait for it: it is killed at once.
    """
    try:
        if not _ends_within(process, 0.0):
            process.terminate()
            _ends_within(process, _FAREWELL_S)
    finally:
        with unheard():
            # Not reaped yet, so nobody else has its number.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
    return code


def _ending(order: Order, code: int, seconds: float, *, in_time: bool) -> Launched:
    runs = sorted((order.folder / "results").glob("*/*/metrics.jsonl"))
    run = runs[-1].parent if runs else None
    problem = ""
    if not in_time:
        problem = f"did not end within {order.timeout_s:.0f} s and was killed (--launch-timeout)"
    elif code < 0:
        problem = f"was killed by {_signal_name(-code)}"
    elif run is not None and not (run / "summary.json").exists():
        problem = f"ended with exit code {code} before its run was complete"
    elif run is None and code not in {0, 1, _NO_TESTS}:
        problem = f"ended with exit code {code} before a benchmark ran"
    return Launched(
        seconds=seconds,
        code=code,
        run=run,
        problem=problem,
        refused=in_time and run is None and code == 4,
        last_lines=last_lines(order.folder / "output.txt"),
    )


def last_lines(path: Path) -> tuple[str, ...]:
    """The end of what a launch has said."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _SHOWN_BYTES))
        text = file.read().decode("utf-8", "backslashreplace")
    return tuple(line for line in text.splitlines() if line.strip())[-_SHOWN_LINES:]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
