"""How a session that starts no benchmark says why."""

from __future__ import annotations

import pytest

from gpubench_plugin.session.start import refusal_text


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("no images", "t.py::a: no images (and 1 more benchmark)"),
        ("--device: unknown 'gpu'", "--device: unknown 'gpu'"),
    ],
)
def test_a_reason_has_its_benchmarks_unless_an_option_is_to_blame(
    reason: str, message: str
) -> None:
    """A refused option is to be mended, whichever benchmark meets it first."""
    assert refusal_text({reason: ["t.py::a", "t.py::b"]}) == message
