"""The ``gpubench`` subcommands: one file each, discovered by name."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.cli.commands.base import Command, ExitCode

__getattr__ = lazy_names(__name__)
