"""Which settings decide whether two measurements are comparable."""

from __future__ import annotations

import pytest

from gpubench_plugin.compare import differences_text, settings_differences
from gpubench_plugin.config import Configuration, ModelSection, comparable
from tests.support.made import result


class Rewritten(ModelSection):
    """Of a workload that computes otherwise than it did."""

    revision = 3


@pytest.mark.parametrize(
    ("section", "expected"), [(ModelSection, {}), (Rewritten, {"model.revision": 3})]
)
def test_revision_of_a_workload_is_compared(section: type[ModelSection], expected: object) -> None:
    """A later revision stands among the settings; the first leaves earlier records comparable."""
    configuration = Configuration[section](model=section())  # type: ignore[valid-type]
    assert comparable(configuration) == expected


def test_earlier_numbers_of_a_rewritten_workload_are_incomparable() -> None:
    """The difference names both revisions; a record without one is of the first."""
    base, head = result(), result(settings={"model.revision": 3})
    (difference,) = settings_differences(base, head, is_partial=False)
    assert differences_text([difference]) == "model.revision absent in base, 3 in head"
