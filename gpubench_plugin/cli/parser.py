"""Parser of the ``gpubench`` command line, which answers what is misspelt with what was meant."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NoReturn

from gpubench_plugin.core.errors import suggest

if TYPE_CHECKING:
    from gpubench_plugin.cli.commands.base import Command


class Parser(argparse.ArgumentParser):
    """Parser without abbreviations, with suggestions; subcommands get parsers of its class.

    The parser of a command has the default `command`.
    """

    def __init__(self, **settings: Any):
        super().__init__(**settings, allow_abbrev=False)
        self._arguments: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, and set `parser` to the innermost one, which knows the command's usage."""
        self._arguments = sys.argv[1:] if args is None else args
        options, unknown = super().parse_known_args(args, namespace)
        if not hasattr(options, "parser"):  # the subcommand's comes first
            options.parser = self
        return options, unknown

    def refuse(self, unknown: Sequence[str], *, hint: str) -> NoReturn:
        """Exit with the usage and the `unknown` arguments; `hint` is for those like no option."""
        suggestion = self._misplaced_option(unknown) or self._meant_option(unknown) or hint
        super().error(
            f"unrecognized arguments: {' '.join(unknown)}{suggestion and f'; {suggestion}'}"
        )

    def error(self, message: str) -> NoReturn:
        """Exit with the usage and `message`, of which a misspelt option may be the cause."""
        suggestion = self._meant_option(self._arguments)
        super().error(f"{message}{suggestion and f'; {suggestion}'}")

    def _misplaced_option(self, unknown: Sequence[str]) -> str:
        """Where the first `unknown` option belongs that this command knows."""
        for argument in unknown:
            if argument.partition("=")[0] in self._option_string_actions:
                return f"options go behind the command: {self.prog} {argument}"
        return ""

    def _meant_option(self, arguments: Sequence[str]) -> str:
        """What the first unknown option means: one that takes it as a value, or is spelt alike.

        ``--json`` is ``--format=json``.
        """
        known = [name[2:] for name in self._option_string_actions if name.startswith("--")]
        for argument in takewhile("--".__ne__, arguments):
            name, equals, value = argument.partition("=")
            if not name.startswith("--") or name[2:] in known:
                continue
            for action in self._actions:
                if action.option_strings and name[2:] in vars(action).get("offered", ()):
                    return f"did you mean {action.option_strings[-1]}={name[2:]}?"
            if near := get_close_matches(name[2:], known, 1, 0.7):
                return f"did you mean --{near[0]}{equals}{value}?"
        return ""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse an unknown command or choice with the nearest; argparse only lists them all."""
        if action.choices is not None and value not in action.choices:
            choices = [*map(str, action.choices)]
            word = str(value).casefold()
            meant = [*self._meant_commands(action, word)]
            if word and not meant:
                meant = [name for name in choices if name.startswith(word)]
            hint = suggest(word, dict.fromkeys([*choices, *meant]), {word: meant} if meant else {})
            message = f"unknown {str(value)!r}{hint}; allowed: {', '.join(choices)}"
            raise argparse.ArgumentError(action, message)

    def _meant_commands(self, action: argparse.Action, word: str) -> Iterator[str]:
        """Commands and actions that `word` is another word for: ``runs prune``."""
        if not isinstance(action, argparse._SubParsersAction):
            return
        if meaning := _other_words(self).get(word):
            yield meaning
            return
        for name, parser in action.choices.items():
            words = {inner: inner for inner in _actions(parser)} | {**_other_words(parser)}
            if word in words:
                yield f"{name} {words[word]}".strip()


def _other_words(parser: argparse.ArgumentParser) -> Mapping[str, str]:
    command: Command | None = parser.get_default("command")
    return {} if command is None else command.other_words


def _actions(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Names of the actions of the parser's command."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices
