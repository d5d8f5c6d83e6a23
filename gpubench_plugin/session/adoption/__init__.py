"""Adoption of pytest-benchmark tests as benchmarks (``--adopt``).

pytest-benchmark measures them, as it always did, in the process in which an ordinary test runs.
Afterwards what it measured is recorded like a measurement of ours.
"""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.session.adoption.adopter import AdoptionPlugin
    from gpubench_plugin.session.adoption.timer import Accelerator, SynchronisedTimer

__getattr__ = lazy_names(__name__)
