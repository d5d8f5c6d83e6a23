"""torchrun on two hosts: two network namespaces, joined by a cable within the kernel."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpubench_plugin.compare.comparability import Comparability
from gpubench_plugin.results.reader import RunReader
from gpubench_plugin.results.run_directory import RunDirectory

ROOT = Path(__file__).parents[2]
PORT = 29533
TESTS = (
    *("benchmarks", "-k", "mlp_train and not accumulated", "-p", "no:cacheprovider"),
    *("--measure.by=steps", "--measure.steps=5", "--measure.warmup_s=0.001"),
)


@pytest.fixture
def hosts() -> Iterator[dict[str, tuple[str, str]]]:
    """Two namespaces: the interface and the address of each. They are gone afterwards."""
    if shutil.which("ip") is None:
        pytest.skip("needs the command ip (iproute2)")
    tag = f"gpb{os.getpid()}"
    made = {f"{tag}{side}": (f"{tag}{side}", f"10.231.77.{n}") for n, side in ((1, "a"), (2, "b"))}
    (a, _), (b, _) = made.values()
    try:
        for name in made:
            ip("netns", "add", name)
        ip("link", "add", a, "netns", a, "type", "veth", "peer", "name", b, "netns", b)
        for name, (interface, address) in made.items():
            ip("-n", name, "addr", "add", f"{address}/24", "dev", interface)
            ip("-n", name, "link", "set", interface, "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield made
    finally:
        for name in made:  # their interfaces go with them
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def ip(*arguments: str) -> None:
    """Run the command ``ip``; without the right to, skip the test."""
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


def start(
    namespace: str, interface: str, address: str, *, root: str, results: Path
) -> subprocess.Popen[str]:
    """The torchrun of one host, for two of the four ranks.

    Its processes and temporary files are its own, so that ranks reach each other by TCP only.
    """
    own = results.parent / namespace
    own.mkdir()
    alone = ["unshare", "-mpf", "--mount-proc", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"']
    torchrun = [
        *("--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-id=gpubench"),
        *(f"--rdzv-endpoint={root}:{PORT}", f"--local-addr={address}"),
        *("--rdzv-conf", f"is_host={str(address == root).lower()}"),
    ]
    return subprocess.Popen(
        [
            *("ip", "netns", "exec", namespace, *alone, own),
            *(sys.executable, "-m", "torch.distributed.run", *torchrun),
            *("-m", "pytest", *TESTS, f"--results-dir={results}"),
        ],
        cwd=ROOT,
        env={
            **os.environ,
            "GLOO_SOCKET_IFNAME": interface,
            "OMP_NUM_THREADS": "1",
            "TMPDIR": str(own),
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.mark.exhaustive
def test_four_ranks_on_two_hosts_write_one_run(
    hosts: dict[str, tuple[str, str]], tmp_path: Path
) -> None:
    """Rank zero writes for both hosts; every rank leaves its samples in the same folder.

    What they measured is comparable with what a gang does whose ranks have as many threads.
    """
    root = next(address for _, address in hosts.values())
    agents = [
        start(name, interface, address, root=root, results=tmp_path / "hosts")
        for name, (interface, address) in hosts.items()
    ]
    try:
        said = [agent.communicate(timeout=240)[0] for agent in agents]
    finally:
        for agent in agents:
            if agent.poll() is None:
                os.killpg(agent.pid, signal.SIGKILL)
                agent.communicate()

    assert [agent.returncode for agent in agents] == [0, 0], "\n".join(said)
    assert sum(text.count("test session starts") for text in said) == 1
    assert "warning" not in "".join(said)
    (directory,) = tmp_path.glob("hosts/*/*")
    summary = json.loads((directory / "summary.json").read_text())
    assert summary["status"] == "complete"
    measured = [b for b in summary["benchmarks"] if b["outcome"] == "measured"]
    assert measured
    assert {b["world_size"] for b in measured} == {4}
    assert [key for b in measured for key in b["machine"] if key.startswith("hosts.")] == []
    samples = {path.name for path in (directory / "ranks").glob("*.jsonl")}
    assert samples == {f"rank-{rank}.jsonl" for rank in range(4)}
    logs = {path.name: path.read_text() for path in (directory / "ranks").glob("*.log")}
    assert set(logs) == {"ranks4-rank-0.log"}, "the others write where torchrun lets them"

    gang = [sys.executable, "-m", "pytest", *TESTS, "--world-size=4", f"--results-dir={tmp_path}"]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(gang, cwd=ROOT, env=environ, capture_output=True, check=True)
    (other,) = tmp_path.glob("default/*")
    base, head = (RunReader(RunDirectory(path=path)).run() for path in (directory, other))
    judge = Comparability(exempt=(), allow=False).differences
    ids = [b["id"] for b in measured]
    differences = {i: judge(base, base.results[i], head, head.results[i]) for i in ids}
    assert set(differences.values()) == {""}, differences
