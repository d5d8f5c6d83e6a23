"""A SLURM of two nodes on this machine, whose nodes can fail."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from shutil import which
from time import monotonic, sleep

import pytest

from tests.support.processes import is_running, wait_until

COMMANDS = ("sbatch", "slurmctld", "slurmd", "munged")


def missing() -> list[str]:
    """Commands of SLURM that are not installed."""
    return [name for name in COMMANDS if which(name, path=_path()) is None]


def _path() -> str:
    return f"{os.environ['PATH']}:/usr/sbin"


class Cluster:
    """Nodes ``n1`` and ``n2`` in the partitions ``low`` and ``high``, by what is in `folder`."""

    def __init__(self, folder: Path):
        self._folder = folder
        self.configuration = folder / "slurm.conf"

    def start(self) -> None:
        """Start the daemons; the nodes are idle afterwards."""
        log = self._folder / "start.log"  # daemons would keep a pipe open
        with log.open("w") as output:
            start = Path(__file__).with_name("start.sh")
            done = subprocess.run(
                [start, self._folder], stdout=output, stderr=output, check=False, timeout=60
            )
        assert done.returncode == 0, log.read_text()

    def fail(self, node: str) -> None:
        """Cut the power of a node: all stop before the first dies, or one reports the others."""
        for number in (signal.SIGSTOP, signal.SIGKILL):
            self._signal(number, node)

    def stop_controller(self) -> None:
        """End the controller, which saves what it knows; what runs goes on."""
        pid = int((self._folder / "controller.pid").read_text())
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not is_running(pid))

    def start_controller(self) -> None:
        """Start the controller again."""
        command = [which("slurmctld", path=_path()) or "", "-f", str(self.configuration)]
        subprocess.run(command, check=True, timeout=60, stdout=subprocess.DEVNULL)

    def stop(self) -> None:
        """Kill the daemons, the jobs, and all that they started."""
        deadline = monotonic() + 20
        while self._signal(signal.SIGKILL) and monotonic() < deadline:
            sleep(0.1)

    def _signal(self, number: signal.Signals, node: str = "") -> int:
        """Signal the processes of one node or of all; how many."""
        processes = [p for p in Path("/proc").glob("[0-9]*") if self._is_ours(p, node)]
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(int(process.name), number)
        return len(processes)

    def _is_ours(self, process: Path, node: str) -> bool:
        """Whether a process is a job's, by its environment, or a daemon, by its log."""
        if process.name == str(os.getpid()):
            return False
        with suppress(OSError):
            environ = (process / "environ").read_bytes().split(b"\0")
            is_of_node = not node or f"SLURMD_NODENAME={node}".encode() in environ
            if f"SLURM_CONF={self.configuration}".encode() in environ and is_of_node:
                return True
            logs = f"{node or '*'}.log"
            files = [file.readlink() for file in (process / "fd").iterdir()]
            return any(f.parent == self._folder and f.match(logs) for f in files)
        return False


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """An idle cluster that ``SLURM_CONF`` names; a test is skipped where it cannot be."""
    if missing():
        packages = "slurmctld slurmd slurm-client munge"
        pytest.skip(f"SLURM is not installed, no {missing()[0]}: apt-get install {packages}")
    folder = tmp_path / "slurm"
    folder.mkdir()
    cluster = Cluster(folder)
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("SLURM_")]:
            patch.delenv(name)
        patch.setenv("SLURM_CONF", str(cluster.configuration))
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
