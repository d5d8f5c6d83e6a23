"""Who this process is among the ranks."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.ranks.world import World

TORCHRUN = {
    "RANK": "5",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "8",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "node0",
    "MASTER_PORT": "29500",
}


def test_without_a_launcher_the_world_is_one() -> None:
    """An environment that names no rank, even one with an address, is a single rank."""
    alone = World(rank=0, local_rank=0, size=1, local_size=1)
    assert alone == World.from_environment({"MASTER_ADDR": "node0"})
    assert alone.is_root


def test_torchrun_is_understood() -> None:
    """All four numbers come from torchrun's variables."""
    world = World.from_environment(TORCHRUN)
    assert World(rank=5, local_rank=1, size=8, local_size=4) == world
    assert not world.is_root


def test_local_world_size_may_be_left_out() -> None:
    """A launcher that does not say how many ranks are on the host is taken to have one host."""
    environment = {name: TORCHRUN[name] for name in TORCHRUN if name != "LOCAL_WORLD_SIZE"}
    assert World.from_environment(environment).local_size == 8


def test_one_rank_of_a_launcher_needs_no_address() -> None:
    """Nobody has to be met in a world of one."""
    environment = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    assert World() == World.from_environment(environment)


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
