"""Other people's pytest plugins: off in every session of the tests but those that are about them.

Installed, some act unasked: pytest-randomly reorders and reseeds, pytest-rerunfailures listens on a
socket where pytest-xdist is, pytest-random-order adds a line to the header.
"""

from __future__ import annotations

from typing import Final

PLUGINS: Final = (
    *("allure_pytest", "html", "metadata", "pytest_cov", "pytest_jsonreport"),
    *("random_order", "randomly", "rerunfailures", "timeout"),
)
"""Names of their entry points."""


def switched_off(*wanted: str) -> str:
    """Value of ``PYTEST_ADDOPTS`` with which a session has only the `wanted` ones."""
    return " ".join(f"-p no:{name}" for name in PLUGINS if name not in wanted)
