"""``gpubench explain``: the parts of an explanation, gathered from what is on disk."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.cli.explain.comparison import explained_comparison
    from gpubench_plugin.cli.explain.measurement import explained_measurement
    from gpubench_plugin.cli.explain.run import explained_run

__getattr__ = lazy_names(__name__)
