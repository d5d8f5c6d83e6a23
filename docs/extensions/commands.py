"""The command line: ``gpubench`` from its parsers, and what the plugin adds to pytest."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Iterator
from typing import Final
from unittest.mock import patch

from _pytest.config.argparsing import Parser

from docs.extensions.markdown import table
from gpubench_plugin.cli.main import build_parser
from gpubench_plugin.config.options import MARKS, add_options
from gpubench_plugin.config.settings import COMPARING, FLAGS, MEASURING, RECORDING

_OPTIONS: Final = ("Option", "Meaning")
_PAGES: Final = {
    MEASURING: "[configuration](configuration.md)",
    RECORDING: "[runs](../guide/runs.md)",
    COMPARING: "[the gate in pytest](../guide/gating-in-pytest.md)",
}


def commands() -> str:
    """Usage, arguments and options of every command."""
    with patch.dict("os.environ", COLUMNS="80"):
        return "\n\n".join(map(_command, walk(build_parser())))


def walk(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parser, and those of its commands and their actions."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from walk(below)


def _command(parser: argparse.ArgumentParser) -> str:
    rows = [*_rows(parser)]
    return "\n\n".join(
        (
            f"## {parser.prog}",
            inspect.cleandoc(parser.description or ""),
            f"```text\n{parser.format_usage().strip()}\n```",
            table(("Argument", "Meaning"), rows) if rows else "",
            (parser.epilog or "").capitalize(),
        )
    )


def _rows(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    formatter = parser._get_formatter()
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction | argparse._SubParsersAction):
            continue
        names = ", ".join(f"`{name}`" for name in action.option_strings)
        text = formatter._expand_help(action) if action.help else ""
        if action.choices and not all(str(choice) in text for choice in action.choices):
            text = f"{text}: {', '.join(map(str, action.choices))}"
        yield names or f"`{action.metavar or action.dest}`", text


def options() -> str:
    """Options, by group."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for option in FLAGS.values():
        value = f"={option.metavar}" if option.metavar else ""
        groups.setdefault(option.group, []).append((f"`--{option.name}{value}`", option.help))
    return "\n".join(
        f"### {group.capitalize()}\n\nSee {_PAGES[group]}.\n\n{table(_OPTIONS, rows)}"
        for group, rows in groups.items()
    )


def ini_keys() -> str:
    """The ini keys, as they are registered."""
    parser = Parser(_ispytest=True)
    add_options(parser)
    return table(
        ("Ini key", "Default", "Meaning"),
        (
            (f"`{key}`", f"`{default}`" if default else "empty", text)
            for key, (text, _, default) in parser._inidict.items()
        ),
    )


def marks() -> str:
    """The marks with their signatures."""
    found = (re.fullmatch(r"(\w+\(.*?\)): (.*)", mark) for mark in MARKS)
    return table(("Mark", "Meaning"), ((f"`{m[1]}`", m[2]) for m in found if m))
