"""Who this process is among the ranks."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.ranks.world import World, threads_per_rank

TORCHRUN = {
    "RANK": "5",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "8",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "node0",
    "MASTER_PORT": "29500",
}


@pytest.mark.parametrize(
    ("environment", "world"),
    [
        (TORCHRUN, World(rank=5, local_rank=1, size=8, local_size=4)),
        # A launcher that does not say how many ranks are on the host is taken to have one host.
        (TORCHRUN | {"LOCAL_WORLD_SIZE": None}, World(rank=5, local_rank=1, size=8, local_size=8)),
        ({"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}, World()),
        ({"MASTER_ADDR": "node0"}, World()),
    ],
)
def test_environment_names_the_rank(environment: dict[str, str | None], world: World) -> None:
    """By torchrun's variables; one that names no rank is a world of one."""
    found = World.from_environment({k: v for k, v in environment.items() if v is not None})
    assert (found, found.is_root) == (world, world.rank == 0)


@pytest.mark.parametrize(
    "missing", ["RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"]
)
def test_a_missing_variable_is_named(missing: str) -> None:
    """Half an environment is an error that names what is missing beside what is there."""
    environment = {name: TORCHRUN[name] for name in TORCHRUN if name != missing}
    with pytest.raises(UsageProblem, match=f"variable {missing} is missing \\(set: .*torchrun"):
        World.from_environment(environment)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("RANK", "8", "0 to 7"),
        ("RANK", "-1", "0 to 7"),
        ("RANK", "one", "0 to 7"),
        ("LOCAL_RANK", "4", "0 to 3"),
        ("WORLD_SIZE", "0", "1 or more"),
        ("WORLD_SIZE", "²", "1 or more"),
        ("LOCAL_WORLD_SIZE", "9", "1 to 8"),
        ("MASTER_PORT", "65536", "1 to 65535"),
    ],
)
def test_an_impossible_value_is_refused(name: str, value: str, allowed: str) -> None:
    """The message names the variable, its value and what is allowed."""
    with pytest.raises(UsageProblem, match=f"variable {name}='?{value}'?.*allowed: {allowed}$"):
        World.from_environment({**TORCHRUN, name: value})


@pytest.mark.slow
def test_import_costs_no_torch() -> None:
    """The world is read when pytest configures itself, before anybody wants torch."""
    code = "import sys, gpubench_plugin.ranks.world; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    ("cores", "local_ranks", "configured", "users", "expected"),
    [
        (16, 2, None, "", 8),
        (16, 3, None, "", 5),
        (2, 4, None, "", 1),
        (8, 1, None, "", 8),
        (16, 4, 7, "3", 7),
        (16, 4, None, "3", 3),
        (16, 4, None, "2,1", 2),
        (16, 4, None, "none", 4),
    ],
)
def test_cores_are_shared(
    monkeypatch: pytest.MonkeyPatch,
    cores: int,
    local_ranks: int,
    configured: int | None,
    users: str,
    expected: int,
) -> None:
    """Equally, with at least one thread each, unless a number is configured, or the user's."""
    monkeypatch.setattr("gpubench_plugin.ranks.world.usable_cores", lambda: range(cores))
    variables = {"OMP_NUM_THREADS": users}
    assert threads_per_rank(local_ranks, configured=configured, variables=variables) == expected
