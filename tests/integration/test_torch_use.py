"""What uses no torch is measured without it, alone as in company; what comes to use it, with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.support.projects import Project, Run

PLAIN = """
def test_plain(gpubench):
    gpubench(lambda: sum(range(1000)), samples=1)
def test_variants(gpubench):
    gpubench.compare({"range": lambda: sum(range(9)), "list": lambda: sum([*range(9)])})
"""
USERS = {
    "module": """
from own import net
def test_it(gpubench):
    gpubench(lambda: net.total(100))
""",
    "first_call": """
def step():
    import torch
    return torch.ones(100).sum()
def test_it(gpubench):
    gpubench(step)
""",
    "helper_of_the_first_call": """
def test_it(gpubench):
    def step():
        from own.net import total
        return total(100)
    gpubench(step)
""",
    "body": """
def test_it(gpubench):
    import torch
    values = torch.ones(100)
    gpubench(values.sum)
""",
    "fixture": """
def test_it(gpubench, values):
    gpubench(values.sum)
""",
    "own_model": """
def test_it(gpubench):
    from torch import nn, randn
    gpubench.infer(nn.Linear(4, 4), randn(4, 4))
""",
    "variants": """
def test_it(gpubench):
    def total():
        from own.net import total
        return total(100)
    gpubench.compare({"a": total, "b": total})
""",
}
CONFTEST = """
import pytest
@pytest.fixture
def values():
    import torch
    return torch.ones(100)
"""


@pytest.fixture
def users(project: Project) -> Project:
    """A project with a plain benchmark, and with one for each way to come to torch."""
    project.write("test_plain.py", PLAIN)
    project.write("conftest.py", CONFTEST)
    project.write("own/__init__.py", "")
    project.write(
        "own/net.py", "import torch\ndef total(size):\n    return torch.ones(size).sum()\n"
    )
    for name, text in USERS.items():
        project.write(f"test_{name}.py", text)
    return project


def facts_of(run: Run) -> dict[str, dict[str, Any]]:
    """By the file of a benchmark what decides whether it is comparable."""
    assert run.code == 0, run.out + run.err
    return {
        b["id"].partition(".py")[0].removeprefix("test_"): {
            "machine": b["machine"],
            "settings": b["settings"],
            "timer": b["timer"],
        }
        for b in run.summary["benchmarks"]
    }


def test_a_plain_function_imports_nothing_heavy(project: Project) -> None:
    """Neither to measure it, nor to record, and to show what is known of it."""
    for name in ("torch", "scipy", "sqlalchemy", "transformers"):
        project.write(f"{name}.py", f"raise SystemExit('{name} was imported')\n")
    project.write("test_plain.py", PLAIN)
    run = project.run()
    assert run.code == 0, run.out + run.err
    assert run.outcomes == {"test_plain": "measured", "test_variants": "measured"}
    assert "was imported" not in run.out + run.err


@pytest.mark.slow
def test_each_way_to_torch_is_seen_alone_as_in_company(users: Project) -> None:
    """By the same facts; a plain function has none of torch's, whatever others import."""
    together = facts_of(users.run("-p", "no:randomly"))
    assert {*together} == {"plain", *USERS}
    for name, facts in together.items():
        assert ("torch.version" in facts["machine"]) is (name != "plain"), name
    for name in ("plain", "helper_of_the_first_call", "fixture"):
        path = users.path / "results"
        path.rename(users.path / f"results_before_{name}")
        assert facts_of(users.run(f"test_{name}.py")) == {name: together[name]}


def test_a_step_that_imports_torch_is_measured_anew(project: Project) -> None:
    """Its first call is not the first of the measurement, and counts as none of it."""
    project.write("test_it.py", USERS["first_call"])
    run = project.run()
    assert run.outcomes == {"test_it": "measured"}
    (benchmark,) = run.summary["benchmarks"]
    assert "first_step_s" not in benchmark["metrics"]
    assert benchmark["metrics"]["rounds"]["value"] > 0
