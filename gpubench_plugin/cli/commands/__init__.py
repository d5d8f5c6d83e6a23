"""The commands of ``gpubench``: one file each, found by its name."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.cli.commands.base import Command, Exit

__getattr__ = lazy_names(__name__)
