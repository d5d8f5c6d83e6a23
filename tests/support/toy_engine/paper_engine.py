"""An engine whose nodes are a process that writes what shards would: for what the front costs.

The first test is run by a real shard. What that has written is written for every test of every
shard as time passes, under the test's own ids.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any, ClassVar, Final

from gpubench_plugin.engines.base import FOLDER, Capacity, Engine, JobStatus, Shard

SECONDS: Final = "TOY_ENGINE_SECONDS"
"""Variable with the duration of each test."""
_END: Final = "toy-end"
_TICK_S: Final = 0.1


class Paper(Engine):
    """As many nodes as the target says, each with one shard at a time at most."""

    poll_interval_s: ClassVar[float] = 1.0
    _nodes: subprocess.Popen[str] | None = None
    _template: Path | None = None

    def describe(self) -> Capacity:
        """The nodes."""
        count = int(self.target)
        return Capacity(slots=count, hosts=count, text=f"{count} nodes on paper", gpus=False)

    def submit(self, shards: Sequence[Shard]) -> list[str]:
        """Hand them to the nodes."""
        if self._nodes is None:
            first = shards[0]
            self._template = template = Path(tempfile.mkdtemp(prefix="toy-paper-"))
            request = json.loads((first.folder / "request.json").read_text())
            request["ids"] = request["ids"][:1]
            (template / "request.json").write_text(json.dumps(request))
            subprocess.run(
                replace(first, folder=template).command(sys.executable),
                env={**os.environ, FOLDER: str(template)},
                cwd=first.cwd,
                check=True,
                stdout=subprocess.DEVNULL,
            )
            command = [sys.executable, __file__, str(template), os.environ.get(SECONDS, "1")]
            self._nodes = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
        assert self._nodes.stdin is not None
        for shard in shards:
            job = {"folder": str(shard.folder), "ids": shard.ids}
            print(json.dumps(job), file=self._nodes.stdin, flush=True)
        return [str(shard.folder) for shard in shards]

    def poll(self, jobs: Collection[str]) -> Mapping[str, JobStatus]:
        """By a file that is left where a shard has ended."""
        return {
            job: JobStatus(state="ended", node=Path(job).name, code=0)
            if Path(job, _END).exists()
            else JobStatus(state="running", node=Path(job).name)
            for job in jobs
        }

    def cancel(self, jobs: Collection[str]) -> None:
        """Nothing runs but the nodes."""

    def close(self) -> None:
        """End the nodes."""
        if self._nodes is not None:
            self._nodes.kill()
            self._nodes.communicate()
        if self._template is not None:
            shutil.rmtree(self._template, ignore_errors=True)


@dataclass(kw_only=True)
class _Template:
    """Lines of the first test: of its begin and its end, in the reports and in the journal."""

    nodeid: str
    run: Path
    head: str
    begin: tuple[str, str]
    end: tuple[str, str]
    last: str

    @classmethod
    def of(cls, folder: Path) -> _Template:
        (nodeid,) = json.loads((folder / "request.json").read_text())["ids"]
        (journal,) = folder.glob("results/*/*/metrics.jsonl")
        lines = journal.read_text().splitlines(keepends=True)
        started, *reports, last = (folder / "reports.jsonl").read_text().splitlines(keepends=True)
        events = [line for line in lines if '"benchmark": "' in line]
        return cls(
            nodeid=nodeid,
            run=journal.parent,
            head=lines[0],
            begin=(started, "".join(events)),
            end=("".join(reports), "".join(x for x in lines if '"event": "benchmark"' in x)),
            last=last,
        )

    def of_test(self, text: str, nodeid: str) -> str:
        old, new = (json.dumps(i)[1:-1] for i in (self.nodeid, nodeid))
        name, own = (i.rpartition("::")[2] for i in (old, new))
        return text.replace(old, new).replace(f'"{name}"', f'"{own}"')


@dataclass(kw_only=True)
class _Node:
    """What simulates one shard."""

    folder: Path
    left: list[str]
    template: _Template
    due_s: float = field(default_factory=monotonic)
    running: str = ""

    def __post_init__(self) -> None:
        self.run = self.folder / self.template.run.relative_to(self.template.run.parents[2])
        self.run.mkdir(parents=True)
        for name in ("config_resolved.yaml", "system.json"):
            (self.run / name).write_bytes((self.template.run / name).read_bytes())
        self._append("", self.template.head)

    def go_on(self, seconds: float) -> bool:
        """Do what is due; whether it has ended."""
        if monotonic() < self.due_s:
            return False
        if self.running:
            texts = (self.template.of_test(t, self.running) for t in reversed(self.template.end))
            record, reports = texts
            self._append("", record)
            self._append(reports, "")
        if not self.left:
            self._append(self.template.last, "")
            (self.folder / _END).touch()
            return True
        self.running = self.left.pop(0)
        self._append(*(self.template.of_test(text, self.running) for text in self.template.begin))
        self.due_s += seconds
        return False

    def _append(self, reports: str, journal: str) -> None:
        for path, text in (
            (self.folder / "reports.jsonl", reports),
            (self.run / "metrics.jsonl", journal),
        ):
            if text:
                with path.open("a") as file:
                    file.write(text)


def _simulate(template: _Template, seconds: float) -> None:
    os.set_blocking(sys.stdin.fileno(), False)
    nodes: list[_Node] = []
    text = ""
    while True:
        text += os.read(0, 1 << 20).decode() if _has_input() else ""
        *lines, text = text.split("\n")
        for job in map(json.loads, lines):
            facts: dict[str, Any] = job
            nodes.append(_Node(folder=Path(facts["folder"]), left=facts["ids"], template=template))
        nodes = [node for node in nodes if not node.go_on(seconds)]
        sleep(_TICK_S)


def _has_input() -> bool:
    import select

    return bool(select.select([0], [], [], 0)[0])


if __name__ == "__main__":
    _simulate(_Template.of(Path(sys.argv[1])), float(sys.argv[2]))
