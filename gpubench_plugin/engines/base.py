"""Engine base class: what places, starts, watches and fetches the shards of a session.

A shard is an ordinary pytest session with explicit ids on one node. What it measures, and what
becomes of a benchmark that crashes or hangs, is the same wherever it runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from gpubench_plugin.config.sections import EngineSection

FOLDER: Final = "GPUBENCH_SHARD"
"""Environment variable of a shard's session: its folder on the node."""
DEADLINE: Final = "GPUBENCH_SHARD_DEADLINE"
"""Environment variable: Unix time in seconds at which the engine ends the shard, if it does."""
OUTPUT: Final = "output.txt"
"""File in a shard's folder that gets what its session prints, appended."""

State = Literal["queued", "running", "ended", "lost", "cut", "cancelled"]
"""``ended`` by itself; ``lost`` with its node; ``cut`` by preemption or a time limit;
``cancelled`` by somebody else."""


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Tests, by node ids, that one session runs on one node, or on several by torchrun.

    `folder` has what the session reads, ``request.json`` and ``rounds.json``, and gets what it
    writes, always appended to or replaced as a whole. Its session runs in `cwd`, which is in the
    `rootdir`, with the `options` of the interpreter and the `arguments` of pytest. One that
    `is_alone` needs a host to itself. `avoid` are nodes on which it was lost.
    """

    ids: tuple[str, ...] = ()
    folder: Path
    options: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    rootdir: Path
    cwd: Path
    is_alone: bool = False
    avoid: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """Its number in the run."""
        return self.folder.name

    def command(self, python: str, *launcher: str) -> list[str]:
        """Command line of its session, or of a `launcher` of ranks, such as torchrun's module."""
        return [python, *self.options, *launcher, "-m", "pytest", *self.arguments]


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """How a job stands: on which `node`, and the `reason` why it waits or how it ended.

    `code` is the exit code of one that ended, negative for a signal, None if unknown.
    """

    state: State
    node: str = ""
    reason: str = ""
    code: int | None = None


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """What an engine offers: `slots` for shards at once on so many `hosts`.

    The `text` is for the header of the session. `gpus` tells whether a slot has a GPU; None if that
    shows on the nodes only.
    """

    slots: int
    hosts: int
    text: str
    gpus: bool | None = None


class Engine(ABC):
    """A way to run shards: a module in this folder, or an entry point ``gpubench.engines``.

    `target` is what follows the name in ``--on=NAME:TARGET``, or empty. A job is named by a text
    that outlives the session, which may be resumed, and that no other engine gives.

    Methods raise :class:`~gpubench_plugin.core.errors.UsageProblem` where the engine, its target or
    its configuration cannot be used, with the reason in one line.
    """

    outlives_session: ClassVar[bool] = False
    """Whether jobs go on without the session that submitted them."""
    poll_interval_s: ClassVar[float] = 1.0
    """Between two calls of `poll`."""

    def __init__(self, target: str, section: EngineSection):
        self.target = target
        self.section = section

    @abstractmethod
    def describe(self) -> Capacity:
        """What it offers now; called before anything is submitted."""

    @abstractmethod
    def submit(self, shards: Sequence[Shard]) -> list[str]:
        """Submit `shards`, which run as soon as there is room; the job of each.

        Each runs with :data:`FOLDER` set to its folder on the node, its output appended to
        :data:`OUTPUT` there. No two measure one device at once.
        """

    @abstractmethod
    def poll(self, jobs: Collection[str]) -> Mapping[str, JobStatus]:
        """How the `jobs` stand, at once; one that it does not know, and leaves out, is lost."""

    def fetch(self, job: str) -> None:  # noqa: B027 # optional
        """Bring the shard's folder here up to date; nothing to do where the nodes share it.

        After a job has ended or was lost, all that is left of it has been fetched.
        """

    @abstractmethod
    def cancel(self, jobs: Collection[str]) -> None:
        """End the `jobs` that have not ended, with all that they started."""

    def close(self) -> None:  # noqa: B027 # optional
        """Release what the engine holds; jobs that outlive the session go on."""


BASE = Engine
