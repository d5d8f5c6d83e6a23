"""Parser of the ``gpubench`` command line, which answers what is misspelt with what was meant."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

from gpubench_plugin.core.errors import suggest


class Parser(argparse.ArgumentParser):
    """Parser without abbreviations, with suggestions; subcommands get parsers of its class."""

    def __init__(self, **settings: Any):
        super().__init__(**settings, allow_abbrev=False)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, and set `parser` to the innermost one, which knows the command's usage."""
        options, unknown = super().parse_known_args(args, namespace)
        if not hasattr(options, "parser"):  # the subcommand's comes first
            options.parser = self
        return options, unknown

    def refuse(self, unknown: Sequence[str], *, hint: str) -> NoReturn:
        """Exit with the usage and the `unknown` arguments; `hint` is for those like no option."""
        name = unknown[0].partition("=")[0]
        nearest = get_close_matches(name, self._option_string_actions, 1, 0.8)
        suggestion = f"did you mean {nearest[0]}?" if nearest else hint
        self.error(f"unrecognized arguments: {' '.join(unknown)}{suggestion and f'; {suggestion}'}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse an unknown command or choice with the nearest; argparse only lists them all."""
        if action.choices is not None and value not in action.choices:
            choices = [*map(str, action.choices)]
            begun = [choice for choice in choices if value and choice.startswith(str(value))]
            hint = suggest(str(value), choices, {str(value): begun} if begun else {})
            message = f"unknown {str(value)!r}{hint}; allowed: {', '.join(choices)}"
            raise argparse.ArgumentError(action, message)
