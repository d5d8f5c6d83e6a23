"""Adoption of pytest-benchmark tests as benchmarks (``--adopt``).

pytest-benchmark measures them as usual, in the process of an ordinary test; its results are
recorded like measurements of our own.
"""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.session.adoption.adopter import AdoptionPlugin
    from gpubench_plugin.session.adoption.timer import Accelerator, SynchronisedTimer

__getattr__ = lazy_names(__name__)
