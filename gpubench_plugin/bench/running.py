"""The benchmark that is running, as its fixtures see it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from gpubench_plugin.config.case import Case
    from gpubench_plugin.measure.protocols import Subject

_SUBJECTS = pytest.StashKey[list["Subject"]]()


def case_of(request: pytest.FixtureRequest) -> Case:
    """What is known of the benchmark.

    Raises:
        UsageProblem: the test is no benchmark.
    """
    from gpubench_plugin.config.case import CASE
    from gpubench_plugin.errors import UsageProblem

    case: Case | None = request.node.stash.get(CASE, None)
    if case is None:
        raise UsageProblem(
            f"{request.node.nodeid}: gpubench's fixtures work in benchmarks only; ask for the "
            "fixture `gpubench` or add @pytest.mark.gpubench()"
        )
    return case


def subjects_of(request: pytest.FixtureRequest) -> list[Subject]:
    """What is measured beside the step: to be checked before, and asked for facts after."""
    if _SUBJECTS not in request.node.stash:
        request.node.stash[_SUBJECTS] = []
        # The stash outlives the test; models must not.
        request.node.addfinalizer(partial(_forget_subjects, request.node))
    subjects: list[Subject] = request.node.stash[_SUBJECTS]
    return subjects


def _forget_subjects(node: pytest.Item) -> None:
    del node.stash[_SUBJECTS]
