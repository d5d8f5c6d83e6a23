"""Validation of the files that gpubench writes."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.cli.validation.kinds import KINDS, FileReport, validate
    from gpubench_plugin.cli.validation.problems import Problem

__getattr__ = lazy_names(__name__)
