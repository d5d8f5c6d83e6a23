"""SLURM, by its commands alone: shards are tasks of array jobs, or steps inside an allocation."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections import Counter
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from gpubench_plugin.core.errors import UsageProblem, invalid_choice
from gpubench_plugin.engines.base import DEADLINE, FOLDER, OUTPUT, Capacity, Engine, JobStatus
from gpubench_plugin.system.child_process import Child, ChildError, output_of
from gpubench_plugin.system.timeout_clock import TimeoutClock

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from gpubench_plugin.config.sections import EngineSection
    from gpubench_plugin.engines.base import Shard, State

# Between SIGTERM and the end, for what an interrupted session writes.
_GRACE_S: Final = 30
# What would filter or reformat the answers that are read here.
_USERS_OPTIONS: Final = ("SQUEUE_", "SINFO_", "SCANCEL_", "SLURM_TIME_FORMAT")

_STATES: Final[dict[State, str]] = {
    "ended": "COMPLETED FAILED OUT_OF_MEMORY",
    "lost": "NODE_FAIL BOOT_FAIL",
    "cut": "TIMEOUT PREEMPTED DEADLINE",
    "cancelled": "CANCELLED REVOKED",
    "running": "RUNNING COMPLETING STAGE_OUT SIGNALING STOPPED SUSPENDED RESIZING",
}
"""Jobs in any other wait: PENDING, CONFIGURING, REQUEUE_HOLD and so on."""

_MEANINGS: Final = {
    "Resources": "no node is free",
    "Priority": "jobs of higher priority come first",
    "BeginTime": "pause after preemption or a node failure",
    "ReqNodeNotAvail": "a node that it needs is down, drained or reserved",
    "PartitionTimeLimit": "engine.slurm.time is more than the partition allows",
    "Partition": "the partition is closed, or too small",
    "JobLaunchFailure": "the node could not start it, or write into the shard's folder",
    "Assoc": "a limit of the account",
    "QOS": "a limit of the quality of service",
    "TIMEOUT": "the time limit of the job, engine.slurm.time",
}
"""Of SLURM's words by their beginnings, for why a job waits and how it ended."""

_LISTED: Final = "ArrayJobID:|,ArrayTaskID:|,State:|,Reason:|,NodeList:|,exit_code:|,RestartCnt:|"
_STEP: Final = "--ntasks-per-node=1 --kill-on-bad-exit=1 --mpi=none --cpu-bind=quiet,none"
# The controller looks at time limits every 30 s: the signal comes up to a minute before the end.
_SET_DEADLINE: Final = f"""\
job="${{SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}}${{SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}}"
end="$(SLURM_TIME_FORMAT=%s timeout 60 squeue --noheader --jobs="$job" --format=%e)"
[[ "$end" =~ ^[0-9]+$ ]] && export {DEADLINE}="$((end - 60))"
"""
# The address is what SLURM itself reaches a node by; its name need not resolve.
_RENDEZVOUS: Final = """\
address() { sinfo --noheader --Node --nodes="$1" --format=%o | head -n 1; }
first="$(scontrol show hostnames "$SLURM_STEP_NODELIST" | head -n 1)"
exec """
_RDZV: Final = (
    ' --rdzv-backend=c10d --rdzv-id="$SLURM_JOB_ID.$SLURM_STEP_ID" '
    '--rdzv-endpoint="$(address "$first"):29500" --rdzv-conf="is_host=$((SLURM_NODEID == 0))" '
    '--local-addr="$(address "$SLURMD_NODENAME")" '
)


class Slurm(Engine):
    """A partition, the `target`, whose nodes share the folders of shards; or this allocation.

    A session that SLURM requeues, after preemption or a failure of its node, starts again in the
    same job and folder.
    """

    outlives_session = True
    poll_interval_s = 2.0

    def __init__(self, target: str, section: EngineSection):
        super().__init__(target, section)
        self._partition = target or section.slurm.partition or ""
        self._allocation = os.environ.get("SLURM_JOB_ID", "")
        self._waiting: dict[str, Shard] = {}
        self._steps: dict[str, tuple[Child, list[str]]] = {}

    def describe(self) -> Capacity:
        """Nodes of the partition that take jobs, or of the allocation."""
        if self._allocation:
            count, where = len(_hosts()), f"SLURM allocation {self._allocation}"
            if count < self.section.nodes:
                raise UsageProblem(f"engine.nodes={self.section.nodes}: {where} has {count}")
            slots = count // self.section.nodes
            return Capacity(slots=slots, hosts=slots, text=f"{where}: {count} nodes")
        partitions: dict[str, dict[str, str]] = {}
        default = ""
        for line in _ask("sinfo", "--noheader", "--all", "--Node", "--format=%P|%a|%N|%T"):
            name, availability, node, state = line.split("|")
            default = name.rstrip("*") if name.endswith("*") else default
            nodes = partitions.setdefault(name.rstrip("*"), {})
            nodes[node] = state if availability == "up" else f"{availability}-partition"
        partition = self._partition or os.environ.get("SBATCH_PARTITION") or default
        states: dict[str, str] = {}
        for name in partition.split(","):
            if name not in partitions:
                raise invalid_choice("--on=slurm", name, partitions, noun="partition ")
            states |= partitions[name]
        # Signs after a state: does not answer, powered down, planned, to be rebooted and so on.
        counts = Counter("silent" if "*" in s else s.rstrip("~#!%$@^-+") for s in states.values())
        usable = sum(counts[s] for s in ("idle", "mixed", "allocated", "completing", "planned"))
        text = f"SLURM partition {partition}: {counts.pop('idle', 0)} nodes idle"
        text = ", ".join([text, *(f"{n} {state}" for state, n in sorted(counts.items()))])
        slots = max(1, usable // self.section.nodes)
        return Capacity(slots=slots, hosts=slots, text=text)

    def submit(self, shards: Sequence[Shard]) -> list[str]:
        """Tasks of one array for all shards, as far as they may run on the same nodes."""
        jobs: dict[Shard, str] = {}
        if self._allocation:
            jobs = {s: f"{self._allocation}.gpubench-{uuid4().hex[:8]}" for s in shards}
            self._waiting |= {job: shard for shard, job in jobs.items()}
            return [*jobs.values()]
        groups: dict[tuple[str, str], dict[str, Shard]] = {}
        for shard in shards:
            place, number, avoid = shard.folder, "0", ",".join(sorted(filter(None, shard.avoid)))
            # A task's output file is named by its number, below 1,001 by default: so is the folder.
            if re.fullmatch("[1-9][0-9]{0,2}", place.name):
                place, number = place.parent, place.name
            output = str(place).replace("%", "%%") + ("/%a" if number != "0" else "")
            groups.setdefault((f"{output}/{OUTPUT}", avoid), {})[number] = shard
        try:
            for (output, avoid), group in groups.items():
                jobs |= self._submit_array(group, output, avoid)
        except UsageProblem:
            self.cancel(jobs.values())
            raise
        return [jobs[shard] for shard in shards]

    def _submit_array(self, group: dict[str, Shard], output: str, avoid: str) -> dict[Shard, str]:
        run = next(iter(group.values())).folder.parent.parent.name
        nodes, slurm = self.section.nodes, self.section.slurm
        # The session is the batch script's own process on one node, and a step's on several.
        signal = f"--signal={'B:' if nodes == 1 else ''}TERM@{_GRACE_S}"
        fixed = ["sbatch", "--parsable", "--exclusive", "--requeue", "--open-mode=append", signal]
        fixed += [f"--array={','.join(group)}", f"--nodes={nodes}", f"--exclude={avoid}"]
        fixed += [f"--output={output}", f"--job-name=gpubench-{run}"]
        chosen = {**vars(slurm), "partition": self._partition, "arguments": ""}
        own = [*(f"--{name}={value}" for name, value in chosen.items() if value), *slurm.arguments]
        cases = "".join(f"{number})\n{self._script(s)}\n;;\n" for number, s in group.items())
        script = f'#!/bin/bash\ncase "$SLURM_ARRAY_TASK_ID" in\n{cases}esac\n'.encode()
        try:
            answer = _ask(*fixed, *own, question=script)
        except UsageProblem as error:
            if avoid:  # where no other nodes are left, these are better than none
                return self._submit_array(group, output, "")
            raise UsageProblem(f"{error} ({shlex.join(own) or 'by default'})") from None
        job = answer[-1].partition(";")[0]  # "number;cluster"
        return {shard: f"{job}_{number}" for number, shard in group.items()}

    def _script(self, shard: Shard, step: str = "") -> str:
        """Bash that becomes the session of `shard`, or an `srun` with the options of a `step`."""
        nodes, ranks = self.section.nodes, self.section.ranks_per_node
        session = shlex.join(shard.command(sys.executable))
        if nodes > 1:
            launcher = f"-m torch.distributed.run --nnodes={nodes} --nproc-per-node={ranks}"
            line = shlex.join(shard.command(sys.executable, *launcher.split(), "@"))
            session = f"bash -c {shlex.quote(_RENDEZVOUS + line.replace(' @ ', _RDZV, 1))}"
        if nodes > 1 or step:
            session = f"srun --nodes={nodes} {_STEP} {step} {session}"
        cwd, folder = shlex.quote(str(shard.cwd)), shlex.quote(str(shard.folder))
        return f"cd {cwd} || exit\nexport {FOLDER}={folder}\n{_SET_DEADLINE}exec {session}"

    def poll(self, jobs: Collection[str]) -> Mapping[str, JobStatus]:
        """By one call of ``squeue``, which knows a job for some minutes after its end."""
        answer: dict[str, JobStatus] = {}
        if arrays := sorted({a for job in jobs if (a := job.partition("_")[0]).isdecimal()}):
            listing = ("--noheader", "--array", "--states=all", f"--Format={_LISTED}")
            answer = dict(map(_status, _ask("squeue", f"--jobs={','.join(arrays)}", *listing)))
        running = _running_steps(jobs)
        answer |= {job: JobStatus(state="running", node=n) for job, (_, n) in running.items()}
        if self._waiting:
            self._start_steps(running)
        answer |= dict.fromkeys(self._waiting, JobStatus(state="queued", reason="no node is free"))
        for job, (child, nodes) in self._steps.items():
            state: State = "running" if child.code is None else "ended"
            answer[job] = JobStatus(state=state, node=",".join(nodes), code=_code(child.code))
        return {job: answer[job] for job in jobs if job in answer}

    def cancel(self, jobs: Collection[str]) -> None:
        """By ``scancel``; of steps that this session has started, until they have ended."""
        if tasks := [job for job in jobs if job.partition("_")[0].isdecimal()]:
            _ask("scancel", "--quiet", *tasks)
        self._waiting = {job: s for job, s in self._waiting.items() if job not in jobs}
        if steps := [step for job, (step, _) in _running_steps(jobs).items() if job in jobs]:
            _ask("scancel", "--signal=TERM", *steps)
        clock = TimeoutClock()
        for child, _ in [self._steps[job] for job in self._steps.keys() & jobs]:
            child.wait(clock.remaining(_GRACE_S))
            child.end(grace_s=0)  # SLURM ends the step of an `srun` that was killed

    def _start_steps(self, running: Mapping[str, tuple[str, str]]) -> None:
        """Start shards on free nodes: SLURM lets steps share a node that has cores enough."""
        busy = {n for child, nodes in self._steps.values() if child.code is None for n in nodes}
        busy.update(_hosts(",".join(nodes for _, nodes in running.values())) if running else ())
        hosts, count = _hosts(), self.section.nodes
        for job, shard in [*self._waiting.items()]:
            fit = [host for host in hosts if host not in shard.avoid]
            free = [h for h in (fit if len(fit) >= count else hosts) if h not in busy][:count]
            if len(free) == count:
                step = f"--overlap --nodelist={','.join(free)} --job-name={job.partition('.')[2]}"
                command = ["bash", "-c", self._script(shard, step)]
                self._steps[job] = Child(command, output=shard.folder / OUTPUT), free
                del self._waiting[job]
                busy.update(free)


def _ask(name: str, *arguments: str, question: bytes = b"") -> list[str]:
    """Lines that a command of SLURM prints; none about a job that is not known any more.

    Raises:
        UsageProblem: there is no such command, it was refused, or SLURM does not answer.
    """
    if shutil.which(name) is None:
        raise UsageProblem(f"--on=slurm: there is no {name} on PATH")
    environ = {k: v for k, v in os.environ.items() if not k.startswith(_USERS_OPTIONS)}
    # `sbatch` hands its environment on to the job.
    environ |= {"LC_ALL": "C"} if name != "sbatch" else {}
    try:
        # A controller under load takes many seconds; by default they wait 10 s for it themselves.
        answer = output_of([name, *arguments], timeout_s=60, question=question, environ=environ)
    except ChildError as error:
        reason = str(error).removeprefix(f"{name}: error: ")
        if "Invalid job id specified" in reason:
            return []
        raise UsageProblem(f"--on=slurm: {name}: {reason}") from None
    return answer.decode("utf-8", "replace").splitlines()


def _hosts(nodes: str = "") -> list[str]:
    """Names of `nodes`, such as ``n[1-2]``; by default of the allocation."""
    return _ask("scontrol", "show", "hostnames", nodes or os.environ.get("SLURM_JOB_NODELIST", ""))


def _running_steps(jobs: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Steps of shards in the allocations of `jobs`, of earlier sessions too: ids and nodes."""
    allocations = sorted({a for job in jobs if (a := job.partition(".")[0]).isdecimal()})
    listing = ("--noheader", "--steps", "--format=%i|%j|%N", f"--jobs={','.join(allocations)}")
    rows = [row.split("|") for row in _ask("squeue", *listing)] if allocations else []
    return {f"{i.partition('.')[0]}.{name}": (i, n) for i, name, n in rows if "gpubench-" in name}


def _status(line: str) -> tuple[str, JobStatus]:
    """Job and status of a line of ``squeue``."""
    array, task, word, reason, node, wait_status, restarts, _ = line.split("|")
    state: State = next((s for s, words in _STATES.items() if word in words.split()), "queued")
    # OUT_OF_MEMORY comes with a signal that does not exist.
    wait_status = "9" if word == "OUT_OF_MEMORY" else wait_status
    code = _code(os.waitstatus_to_exitcode(int(wait_status))) if state == "ended" else None
    word = reason if word in {"PENDING", "FAILED"} else word
    word = "" if state == "running" or word in {"None", "NonZeroExitCode", "COMPLETED"} else word
    text = next((f"{m} ({word})" for start, m in _MEANINGS.items() if word.startswith(start)), word)
    text = f"requeued: {text}".rstrip(": ") if state == "queued" and int(restarts) else text
    return f"{array}_{task}", JobStatus(state=state, node=node, reason=text, code=code)


def _code(code: int | None) -> int | None:
    """Exit code, negative for a signal, of which shells and ``srun`` make 128 and its number."""
    return 128 - code if code is not None and code > 128 else code
