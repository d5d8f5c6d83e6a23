"""What the ranks of a session have open to others: no token, and no port but gloo's own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.support.projects import Project

CONFTEST = """
import os
assert "GPUBENCH_INVITATION" not in os.environ
"""
TEST = """
import json, os, pathlib
import psutil, pytest
from torch import distributed

@pytest.mark.gpubench(ranks="any")
def test_it(gpubench, process_group):
    assert "GPUBENCH_INVITATION" not in os.environ
    gpubench(distributed.barrier, samples=1)
    if distributed.get_rank() == 0:
        pairs = pathlib.Path("/proc/self/environ").read_text().split("\\0")
        started_with = dict(pair.split("=", 1) for pair in pairs if pair)
        invited = json.loads(started_with["GPUBENCH_INVITATION"])
        processes = [psutil.Process(), psutil.Process().parent()]
        sockets = [s for process in processes for s in process.net_connections("tcp")]
        ports = [s.laddr for s in sockets if s.status == "LISTEN"]
        commands = [p.info["cmdline"] for p in psutil.process_iter(["cmdline"])]
        found = {"invited": invited, "ports": ports, "commands": commands}
        found["master"] = int(os.environ["MASTER_PORT"])
        pathlib.Path("found.json").write_text(json.dumps(found))
"""


@pytest.mark.parametrize(
    ("arguments", "options"),
    [(["--world-size=2"], {}), ([], {"ranks": 2})],
    ids=["gang", "torchrun"],
)
def test_nobody_else_learns_the_token_or_may_connect(
    project: Project, arguments: list[str], options: dict[str, Any]
) -> None:
    """It is in no command line, output, record or log; ranks of a host meet by files and gloo."""
    project.write("conftest.py", CONFTEST)
    project.write("test_it.py", TEST)
    run = project.run("-v", *arguments, **options)
    assert (run.code, run.outcomes) == (0, {"test_it[ranks2]": "measured"}), run.out + run.err
    found = json.loads((project.path / "found.json").read_text())
    token = found["invited"]["token"]
    written = [file.read_bytes() for file in run.directory.rglob("*") if file.is_file()]
    assert written
    assert not any(token.encode() in text for text in written)
    assert token not in f"{found['commands']}{run.out}{run.err}"
    assert all(address.startswith("unix:") for address in found["invited"]["addresses"])
    assert {host for host, _ in found["ports"]} <= {"127.0.0.1", "::1"}
    assert found["master"] not in [port for _, port in found["ports"]]
