"""Dot-key overrides from the command line: ``training.batch_size=64``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gpubench_plugin.config import schema_errors, yaml_reader
from gpubench_plugin.config.layers import Key, Layer, merge, nested
from gpubench_plugin.config.schema_errors import Schema
from gpubench_plugin.config.sections import Configuration
from gpubench_plugin.core.errors import UsageProblem

_KEY = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_][\w-]*)+")
"""No key has a dash: validation answers one that is typed with the key that has ``_`` for it."""
_NULL = "null"


@dataclass(frozen=True, kw_only=True)
class Override:
    """Key and text of an override; the schema determines the type."""

    key: Key
    text: str

    @property
    def source(self) -> str:
        """The option as the user could have written it."""
        return f"--{'.'.join(self.key)}={self.text}"

    def layer(self, schema: Schema) -> Layer:
        """The override as a layer, with the value typed by `schema`.

        A text key takes the text as it is, any other key YAML such as ``[1, 2]`` or ``null``. What
        is not YAML stays text, which validation refuses.
        """
        return Layer(source=self.source, values=nested(self.key, self._value(schema)))

    def _value(self, schema: Schema) -> Any:
        annotation = schema_errors.annotation_at(schema, self.key)
        if annotation is None:  # an unknown key; validation says so
            return self.text
        if schema_errors.takes_text(annotation):
            return (
                None if self.text == _NULL and schema_errors.takes_null(annotation) else self.text
            )
        try:
            return yaml_reader.parse(self.text, self.source)
        except UsageProblem:
            return self.text


def parse(text: str) -> Override:
    """Parse ``key=value`` with a dot key.

    Raises:
        UsageProblem: there is no ``=``, or no dot key before it; or it is not Unicode.
    """
    printable = text.encode(errors="backslashreplace").decode()
    if printable != text:  # it has bytes that are no characters
        raise UsageProblem(f"--set={printable}: not allowed; allowed: text in UTF-8")
    name, separator, value = text.partition("=")
    if not separator or not _KEY.fullmatch(name.strip()):
        example = "for example training.batch_size=64"
        raise UsageProblem(f"--set={text}: not allowed; allowed: section.key=value, {example}")
    return Override(key=tuple(name.strip().split(".")), text=value)


def cli_limits(overrides: Iterable[str]) -> dict[str, str]:
    """Limits by metric set by command line `overrides`, one by one or as a mapping."""
    layers = (parse(text).layer(Configuration) for text in overrides)
    return dict(merge(layers).get(("gate", "limits")) or {})
