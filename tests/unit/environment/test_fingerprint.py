"""Tests of the facts that make measurements comparable."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gpubench_plugin.environment.fingerprints import (
    change_text,
    differences,
    fingerprint_of,
    flat,
    informative_facts,
    machine_facts,
    resume_facts,
)
from gpubench_plugin.environment.system_facts import collect

FACTS: dict[str, Any] = {
    "schema_version": 1,
    "hostname": "node-1",
    "platform": {"system": "Linux", "release": "6.1"},
    "python": {"version": "3.11.2"},
    "cpu": {"model": "abacus", "usable_cores": 2},
    "memory_bytes": 2**34,
    "gpu": {"driver": "580", "devices": [{"name": "H200", "uuid": "GPU-1", "mig": None}]},
    "devices": {"cuda:0": "H200"},
    "torch": {"version": "2.13", "threads": 1},
    "packages": {"numpy": "2.1"},
    "git": {"commit": "c0ffee", "branch": "main", "dirty": True, "remote": "x"},
    "environment_variables": {"OMP_NUM_THREADS": "1", "RANK": "0", "TORCHELASTIC_RUN_ID": "7"},
    "cluster": "ours",
}


def changed(path: str, value: object) -> dict[str, Any]:
    facts = copy.deepcopy(FACTS)
    *parents, last = path.split("/")
    place: Any = facts
    for parent in parents:
        place = place[int(parent) if isinstance(place, list) else parent]
    place[last] = value
    return facts


@pytest.mark.parametrize(
    "path",
    [
        "platform/release",
        "python/version",
        "cpu/model",
        "cpu/usable_cores",
        "gpu/driver",
        "gpu/devices/0/name",
        "gpu/devices/0/mig",
        "devices/cuda:0",
        "packages/torch",
        "packages/numpy",
        "packages/triton",
        "git/commit",
        "git/dirty",
        "environment_variables/OMP_NUM_THREADS",
        "environment_variables/NCCL_ALGO",
    ],
)
def test_what_changes_a_number_counts(path: str) -> None:
    """Hardware, software, code and the variables they read are part of it."""
    key = path.replace("/", ".")
    before, now = resume_facts(FACTS), resume_facts(changed(path, "other"))
    assert {k for k in before.keys() | now.keys() if before.get(k) != now.get(k)} == {key}


@pytest.mark.parametrize(
    "path",
    [
        "hostname",
        "memory_bytes",
        "gpu/devices/0/uuid",
        "git/branch",
        "git/remote",
        "environment_variables/RANK",
        "environment_variables/MASTER_PORT",
        "environment_variables/TORCHELASTIC_RUN_ID",
        "environment_variables/SLURM_JOB_ID",
        "cluster",
    ],
)
def test_names_and_what_launchers_set_do_not(path: str) -> None:
    """Another node of the same kind, a fresh start and a project's own facts change nothing."""
    assert resume_facts(changed(path, "other")) == resume_facts(FACTS)


@pytest.mark.parametrize(
    "name",
    [
        *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "KMP_AFFINITY", "PYTORCH_CUDA_ALLOC_CONF"),
        *("CUBLAS_WORKSPACE_CONFIG", "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"),
        *("GOMP_CPU_AFFINITY", "OPENBLAS_NUM_THREADS", "MALLOC_ARENA_MAX", "LD_PRELOAD"),
    ],
)
def test_variables_of_threads_precision_and_memory_are_facts_of_the_machine(name: str) -> None:
    """Others are only worth saying, but for what is new at every start."""
    of_jobs = ("KERNEL_CACHE_PATH", "HOME", "BUILD_NUMBER", "VERSION", "PRETRAINED_BERT_CACHE")
    others = {"NCCL_ALGO": "Tree", **{f"PYTORCH_{name}": "of this job" for name in of_jobs}}
    of_starts = ("MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "SLURM_JOB_ID")
    facts = {"environment_variables": {name: "1", **others, **dict.fromkeys(of_starts, "2")}}
    assert machine_facts(facts) == {f"environment_variables.{name}": "1"}
    assert informative_facts(facts) == {f"environment_variables.{n}": v for n, v in others.items()}


def test_an_empty_variable_and_the_place_of_a_library_are_no_facts_of_the_machine() -> None:
    """Containers and wrappers set them, and they change no number."""
    variables = {"LD_PRELOAD": "", "OMP_NUM_THREADS": "", "OPENBLAS_HOME": "/opt/openblas"}
    assert machine_facts({"environment_variables": variables}) == {}


def test_what_may_be_unknown_at_a_moment_is_no_part_of_the_hash() -> None:
    """So that the index of a registry finds what is comparable; another processor is not."""
    facts = {"cpu": {"model": "abacus", "governor": None}}
    known = {**facts, "gpu": {"devices": [{"locked_clock_mhz": 1200}]}}
    assert fingerprint_of(machine_facts(known), {}, "t") == fingerprint_of(
        {"cpu.model": "abacus"}, {}, "t"
    )
    for other in ({"cpu.model": "calculator"}, {"cpu.model": "abacus", "cpu.boost": True}):
        assert fingerprint_of(other, {}, "t") != fingerprint_of({"cpu.model": "abacus"}, {}, "t")


@pytest.mark.slow
def test_this_machine_is_itself(pytestconfig: pytest.Config) -> None:
    """Facts collected twice are the same, with this machine's processor among them."""
    first, second = (resume_facts(collect(pytestconfig.rootpath)) for _ in range(2))
    assert first == second
    assert "cpu.usable_cores" in first


def test_nested_facts_are_flat() -> None:
    """Mappings are named by dot key and their lists by number; a list of values stays one."""
    facts = {"a": {"b": 1, "none": {}}, "c": [{"d": 2}, {"d": 3}], "e": [4, 5], "f": None}
    assert flat(facts) == {"a.b": 1, "c.0.d": 2, "c.1.d": 3, "e": [4, 5], "f": None}


def test_only_what_differs_is_told() -> None:
    """A value that changed, one that is new and one that is gone, with both their values."""
    before = {"same": 1, "changed": "a", "gone": None}
    now = {"same": 1, "changed": "b", "new": 2}
    assert {key: change_text(pair) for key, pair in differences(before, now).items()} == {
        "changed": '"a" in the run, "b" now',
        "gone": "null in the run, absent now",
        "new": "absent in the run, 2 now",
    }
