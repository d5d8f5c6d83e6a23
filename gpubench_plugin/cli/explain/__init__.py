"""Explanations for ``gpubench explain``, built from files on disk."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.cli.explain.comparison import explain_comparison
    from gpubench_plugin.cli.explain.measurement import explain_measurement
    from gpubench_plugin.cli.explain.run import explain_run

__getattr__ = lazy_names(__name__)
