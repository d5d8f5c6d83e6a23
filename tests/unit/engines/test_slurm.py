"""What is read from SLURM's answers (as version 22.05.8 gave them), and what it is asked."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpubench_plugin.config.sections import EngineSection
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.engines.base import JobStatus, Shard
from gpubench_plugin.engines.slurm import Slurm
from gpubench_plugin.system.child_process import ChildError

MODULE = "gpubench_plugin.engines.slurm"


class Commands:
    """Stands for SLURM's commands: `answers` by their names, and how they were `called`."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.called: list[list[str]] = []
        self.environments: dict[str, dict[str, str]] = {}
        self.script = ""

    def __call__(
        self, command: list[str], *, timeout_s: float, question: bytes, environ: dict[str, str]
    ) -> bytes:
        self.called.append(command)
        self.environments[command[0]] = environ
        self.script = question.decode()
        answer = self.answers[command[0]]
        if callable(answer):
            answer = answer(command)
        if isinstance(answer, ChildError):
            raise answer
        assert timeout_s < 600
        return str(answer).encode()


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Commands:
    """SLURM's commands, outside an allocation."""
    for name in [name for name in os.environ if name.startswith(("SLURM_", "SBATCH_"))]:
        monkeypatch.delenv(name)
    commands = Commands()
    monkeypatch.setattr(f"{MODULE}.output_of", commands)
    monkeypatch.setattr(f"{MODULE}.shutil.which", lambda name: f"/usr/bin/{name}")
    return commands


def engine(target: str = "", **section: Any) -> Slurm:
    """The engine with this configuration."""
    return Slurm(target, EngineSection.model_validate(section))


def shard(folder: Path, **options: Any) -> Shard:
    """A shard in a folder, called as that."""
    options = {"rootdir": folder.parent, "cwd": folder.parent, **options}
    return Shard(folder=folder, arguments=("-k", "it's $HOME"), **options)


UNAVAILABLE = (
    "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("PENDING|None||0|0", JobStatus(state="queued")),
        ("PENDING|Resources||0|0", JobStatus(state="queued", reason="no node is free (Resources)")),
        (
            "PENDING|ReqNodeNotAvail, UnavailableNodes:n1||0|0",
            JobStatus(
                state="queued",
                reason="a node that it needs is down, drained or reserved"
                " (ReqNodeNotAvail, UnavailableNodes:n1)",
            ),
        ),
        (f"PENDING|{UNAVAILABLE}||0|0", JobStatus(state="queued", reason=UNAVAILABLE)),
        (
            "PENDING|QOSMaxJobsPerUserLimit||0|0",
            JobStatus(
                state="queued", reason="a limit of the quality of service (QOSMaxJobsPerUserLimit)"
            ),
        ),
        ("PENDING|None||0|2", JobStatus(state="queued", reason="requeued")),
        (
            "PENDING|BeginTime||0|1",
            JobStatus(
                state="queued",
                reason="requeued: pause after preemption or a node failure (BeginTime)",
            ),
        ),
        ("CONFIGURING|None|n1|0|0", JobStatus(state="queued", node="n1", reason="CONFIGURING")),
        ("RUNNING|None|n[1-2]|0|0", JobStatus(state="running", node="n[1-2]")),
        ("SIGNALING|None|n1|0|0", JobStatus(state="running", node="n1")),
        ("COMPLETING|NonZeroExitCode|n1|256|0", JobStatus(state="running", node="n1")),
        ("COMPLETED|None|n1|0|1", JobStatus(state="ended", node="n1", code=0)),
        ("FAILED|NonZeroExitCode|n1|768|0", JobStatus(state="ended", node="n1", code=3)),
        ("FAILED|NonZeroExitCode|n1|35072|0", JobStatus(state="ended", node="n1", code=-9)),
        (
            "FAILED|JobLaunchFailure|n2|9|0",
            JobStatus(
                state="ended",
                node="n2",
                code=-9,
                reason="the node could not start it, or write into the shard's folder"
                " (JobLaunchFailure)",
            ),
        ),
        (
            "OUT_OF_MEMORY|OutOfMemory|n1|125|0",
            JobStatus(state="ended", node="n1", code=-9, reason="OUT_OF_MEMORY"),
        ),
        ("NODE_FAIL|NodeDown|n2|0|0", JobStatus(state="lost", reason="NODE_FAIL", node="n2")),
        ("COMPLETING|TimeLimit|n1|0|0", JobStatus(state="running", node="n1")),
        (
            "TIMEOUT|TimeLimit|n1|9|0",
            JobStatus(
                state="cut",
                node="n1",
                reason="the time limit of the job, engine.slurm.time (TIMEOUT)",
            ),
        ),
        ("PREEMPTED|None|n2|15|0", JobStatus(state="cut", reason="PREEMPTED", node="n2")),
        ("CANCELLED|None|n2|512|0", JobStatus(state="cancelled", reason="CANCELLED", node="n2")),
    ],
)
def test_states_of_jobs(commands: Commands, row: str, expected: JobStatus) -> None:
    """What a job waits for and how it ended is told with SLURM's own word."""
    commands.answers["squeue"] = f"7|3|{row}|\n"

    assert engine().poll(["7_3"]) == {"7_3": expected}


def test_all_jobs_are_asked_for_at_once(commands: Commands) -> None:
    """One call knows tasks of several arrays; one that SLURM has forgotten is left out."""
    commands.answers["squeue"] = "7|1|RUNNING|None|n1|0|0|\n9|1|PENDING|Priority||0|0|\n"

    statuses = engine().poll(["7_1", "7_2", "9_1"])

    assert {job: s.state for job, s in statuses.items()} == {"7_1": "running", "9_1": "queued"}
    (call,) = commands.called
    assert "--jobs=7,9" in call


def test_forgotten_and_foreign_jobs_are_unknown(commands: Commands) -> None:
    """So is one whose number SLURM refuses; another engine's is not even asked for."""
    commands.answers["squeue"] = ChildError("slurm_load_jobs error: Invalid job id specified")

    for jobs in (["7_1", "local-3", "12"], ["local-3"], []):
        assert engine().poll(jobs) == {}
    asked = [word for call in commands.called for word in call if word.startswith("--jobs")]
    assert asked == ["--jobs=12,7", "--jobs=12"]  # array jobs, and allocations of steps


NODES = """\
low*|up|n1|idle
high|up|n1|idle
low*|up|n2|drained
high|up|n2|drained
low*|up|n3|down*
low*|up|n4|idle*
low*|up|n5|mixed-
low*|up|n6|idle~
closed|drain|n7|idle
"""


@pytest.mark.parametrize(
    ("target", "section", "slots", "text"),
    [
        ("", {}, 3, "SLURM partition low: 2 nodes idle, 1 drained, 1 mixed, 2 silent"),
        ("", {"nodes": 2}, 1, "1 mixed, 2 silent"),
        ("", {"slurm": {"partition": "high"}}, 1, "partition high: 1 nodes idle, 1 drained"),
        ("high", {"slurm": {"partition": "low"}}, 1, "partition high: 1 nodes idle, 1 drained"),
        ("closed", {}, 1, "SLURM partition closed: 0 nodes idle, 1 drain-partition"),
        ("high,closed", {}, 1, "1 nodes idle, 1 drain-partition, 1 drained"),
    ],
)
def test_capacity_is_nodes_that_take_jobs(
    commands: Commands, target: str, section: dict[str, Any], slots: int, text: str
) -> None:
    """Of the partition that ``--on`` names, else of the configuration's, else of the default."""
    commands.answers["sinfo"] = NODES

    capacity = engine(target, **section).describe()

    assert (capacity.slots, capacity.gpus) == (slots, None)
    assert capacity.text.endswith(text)


def test_unknown_partition(commands: Commands) -> None:
    """The nearest and all others are named."""
    commands.answers["sinfo"] = NODES

    with pytest.raises(UsageProblem, match=r"'hihg' \(did you mean 'high'\?\); .*low, high"):
        engine("hihg").describe()


def test_no_slurm(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """The missing command is named."""
    monkeypatch.setattr(f"{MODULE}.shutil.which", lambda _: None)

    with pytest.raises(UsageProblem, match="--on=slurm: there is no sinfo"):
        engine().describe()
    assert not commands.called


def test_no_answer(commands: Commands) -> None:
    """A controller that does not answer is a problem of the engine, not the end of its jobs."""
    for name in ("sinfo", "squeue"):
        commands.answers[name] = ChildError(
            "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
        )

    with pytest.raises(UsageProblem, match=r"squeue: .*Unable to contact slurm controller"):
        engine().poll(["7_1"])
    with pytest.raises(UsageProblem, match=r"sinfo: .*Unable to contact slurm controller"):
        engine().describe()


def test_environment_of_commands(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own filters and formats do not reach what is read; jobs keep their locale."""
    commands.answers |= {"squeue": "", "sbatch": "7\n"}
    for name in ("SQUEUE_USERS", "SLURM_TIME_FORMAT"):
        monkeypatch.setenv(name, "relative")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")

    engine().poll(["7_1"])
    engine().submit([shard(Path("/run/shards/1"))])

    assert commands.environments["squeue"]["LC_ALL"] == "C"
    assert not {"SQUEUE_USERS", "SLURM_TIME_FORMAT"} & {*commands.environments["squeue"]}
    assert commands.environments["sbatch"]["LC_ALL"] == "de_DE.UTF-8"


def test_one_array_for_all(commands: Commands) -> None:
    """Numbers of tasks are those of folders, in which SLURM writes the output of each."""
    commands.answers["sbatch"] = "7;cluster\n"
    section = {"partition": "low", "gres": "gpu:8", "time": "30", "arguments": ("--qos=high",)}

    folder = Path("/results/100%/shards")
    jobs = engine("fast", slurm=section).submit([shard(folder / "4"), shard(folder / "11")])

    assert jobs == ["7_4", "7_11"]
    (call,) = commands.called
    assert {"--array=4,11", "--exclusive", "--requeue", "--open-mode=append"} < {*call}
    assert {"--output=/results/100%%/shards/%a/output.txt", "--job-name=gpubench-100%"} < {*call}
    assert "--signal=B:TERM@30" in call  # its own process on one node
    assert {"--partition=fast", "--gres=gpu:8", "--time=30"} < {*call}
    assert "--partition=low" not in call
    assert call[-1] == "--qos=high"


def test_several_arrays(commands: Commands, tmp_path: Path) -> None:
    """Shards that avoid other nodes, or whose folders have no numbers, have arrays of their own."""
    numbers = iter(range(7, 11))
    commands.answers["sbatch"] = lambda _: f"{next(numbers)}\n"
    shards = [
        shard(tmp_path / "1"),
        shard(tmp_path / "2", avoid=frozenset({"n2", "n1", ""})),
        shard(tmp_path / "first"),
        shard(tmp_path / "1001"),  # no number of a task, by default
        shard(tmp_path / "3"),
    ]

    assert engine().submit(shards) == ["7_1", "8_2", "9_0", "10_0", "7_3"]
    excluded = [next(word for word in call if "--exclude" in word) for call in commands.called]
    assert excluded == ["--exclude=", "--exclude=n1,n2", "--exclude=", "--exclude="]
    assert f"--output={tmp_path}/first/output.txt" in commands.called[2]


def test_nodes_are_not_avoided_where_no_others_are_left(commands: Commands, tmp_path: Path) -> None:
    """SLURM refuses a job for which there are no nodes at all."""

    def answer(command: list[str]) -> object:
        if "--exclude=n1,n2" in command:
            return ChildError("sbatch: error: Requested node configuration is not available")
        return "7\n"

    commands.answers["sbatch"] = answer

    jobs = engine().submit([shard(tmp_path / "1", avoid=frozenset({"n1", "n2"}))])

    assert jobs == ["7_1"]


def test_refused_submission(commands: Commands, tmp_path: Path) -> None:
    """What was asked for is shown, and what was submitted before does not stay behind."""
    refusal = ChildError("sbatch: error: Batch job submission failed: no")
    answers = iter(["7\n", refusal, refusal])
    commands.answers["sbatch"] = lambda _: next(answers)
    commands.answers["scancel"] = ""
    shards = [shard(tmp_path / "1"), shard(tmp_path / "2", avoid=frozenset({"n1"}))]

    with pytest.raises(UsageProblem, match=r"sbatch: Batch job submission failed: no \(--gres=x\)"):
        engine(slurm={"gres": "x"}).submit(shards)

    assert commands.called[-1] == ["scancel", "--quiet", "7_1"]


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [1, 2])
def test_script_is_valid_shell(commands: Commands, tmp_path: Path, nodes: int) -> None:
    """Whatever names and arguments have; over several nodes the step gets the signal."""
    commands.answers["sbatch"] = "7\n"
    folder = tmp_path / "it's a $(run)" / "1"

    engine(nodes=nodes, ranks_per_node=4).submit([shard(folder), shard(folder.with_name("2"))])

    script = commands.script
    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert script.count("exec srun") == (0 if nodes == 1 else 2)
    assert script.count("--nnodes=2 --nproc-per-node=4") == (0 if nodes == 1 else 2)
    assert ("--signal=TERM@30" in commands.called[0]) == (nodes > 1)


@pytest.fixture
def allocation(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """An allocation of two nodes, on the first of which a step of an earlier session runs."""
    monkeypatch.setenv("SLURM_JOB_ID", "33")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    commands.answers["squeue"] = "33.0|gpubench-early|n1\n33.1|bash|n2\n"
    hosts = {"n[1-2]": "n1\nn2\n", "n1": "n1\n"}
    commands.answers["scontrol"] = lambda command: hosts[command[-1]]
    return commands


def test_capacity_of_an_allocation(allocation: Commands) -> None:
    """Its nodes are what there is."""
    assert engine().describe().slots == 2
    assert "allocation 33: 2 nodes" in engine().describe().text
    with pytest.raises(UsageProblem, match=r"engine\.nodes=3: SLURM allocation 33 has 2"):
        engine(nodes=3).describe()
    assert {call[0] for call in allocation.called} == {"scontrol"}


def test_steps_take_free_nodes(
    allocation: Commands, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A step of an earlier session is known by its name, and its node is not free."""
    started: list[str] = []

    class Step:
        code = None

        def __init__(self, command: list[str], **_: object):
            started.append(command[-1])

    monkeypatch.setattr(f"{MODULE}.Child", Step)
    slurm = engine()
    for name in "12":
        (tmp_path / name).mkdir()
    jobs = slurm.submit([shard(tmp_path / "1"), shard(tmp_path / "2")])

    statuses = slurm.poll([*jobs, "33.gpubench-early", "33.gpubench-gone"])

    assert {job: (status.state, status.node) for job, status in statuses.items()} == {
        jobs[0]: ("running", "n2"),
        jobs[1]: ("queued", ""),
        "33.gpubench-early": ("running", "n1"),
    }
    (script,) = started
    assert "--nodelist=n2" in script
    allocation.answers["scancel"] = ""
    slurm.cancel(["33.gpubench-early", jobs[1]])
    assert allocation.called[-1] == ["scancel", "--signal=TERM", "33.0"]
    assert jobs[1] not in slurm.poll([jobs[1]])
