"""Stored forms: the version of a file, and records as JSON's own types and back.

Keys, descriptions and bounds of a record stand in the metadata of its fields, which pydantic reads;
it is imported where the first record is read or written.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from gpubench_plugin.environment import json_files
from gpubench_plugin.errors import BrokenFile

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import TypeAdapter

    from gpubench_plugin.records import Json

SCHEMA_URL: Final = "https://json-schema.org/draft/2020-12/schema"

UTC_TIME: Final = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)$"
"""The pattern of a time in UTC, ISO 8601."""

_Record = TypeVar("_Record")
_LONGEST_VALUE: Final = 40
_MESSAGES: Final = {"missing": "it is missing", "unexpected_keyword_argument": "no such key"}
"""Messages by type of pydantic's errors, where it has a value or words of Python's own."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """A kind of file that states its version under `key`; the versions 1 to `newest` are read.

    `what` ends the message "it is no …"; a file of more than `limit` bytes is not read.
    """

    what: str
    newest: int
    key: str = "schema_version"
    limit: int = json_files.LIMIT_OF_FACTS_BYTES

    def load(self, path: Path) -> Json:
        """The fields of the file at `path`.

        Raises:
            UsageProblem: there is no such file.
            BrokenFile: as :meth:`parsed`, or it is no regular file, or too large.
            ResultsError: the operating system does not let it be read.
        """
        return self.checked(json_files.load(path, limit=self.limit), str(path))

    def parsed(self, text: str | bytes, where: str) -> Json:
        """The fields in `text`, which messages call `where`.

        Raises:
            BrokenFile: it is no JSON object, or states no version that is read.
        """
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        return self.checked(json_files.parse(data, where), where)

    def checked(self, fields: object, where: str) -> Json:
        """The `fields`, if they are an object of a version that is read; raises BrokenFile."""
        if not isinstance(fields, dict) or self.key not in fields:
            raise BrokenFile(f"{where} is no {self.what}: it has no {self.key}")
        version = fields[self.key]
        # Literal[1, 2] of pydantic takes true and 1.0 too, also where it is strict.
        shown = _shown(version)
        if type(version) is not int or version < 1:
            raise BrokenFile(
                f"{where} is no {self.what}: {self.key} {shown} is not allowed; "
                f"allowed: 1 to {self.newest}"
            )
        if version > self.newest:
            raise BrokenFile(
                f"{where}: {self.key} {shown}, but this version of gpubench "
                f"reads up to {self.newest}; upgrade pytest-gpubench to read it"
            )
        return cast("Json", fields)


def dumped(record: object) -> Json:
    """The fields of a dataclass by their stored names, those of nested ones alike."""
    fields: Json = _adapter(cast("Any", type(record))).dump_python(
        record, by_alias=True, warnings=False
    )
    return fields


def restored(kind: type[_Record], fields: object, where: str, *, strict: bool = False) -> _Record:
    """The record of a `kind` that :func:`dumped` gave these `fields`.

    Numbers in texts and truth values as numbers are converted, unless it is `strict`.

    Raises:
        BrokenFile: ``<where> breaks the schema at <place>``, and how.
    """
    from pydantic import ValidationError
    from pydantic_core import PydanticSerializationError, to_json

    adapter: TypeAdapter[_Record] = _adapter(cast("Any", kind))
    try:
        if not strict:
            return adapter.validate_python(fields)
        # Strictly, pydantic takes an object for a dataclass from the text of JSON alone.
        return adapter.validate_json(to_json(fields, inf_nan_mode="constants"), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the record"
        message = _MESSAGES.get(first["type"], f"{first['msg']}, not {_shown(first['input'])}")
        raise BrokenFile(f"{where} violates the schema at {place}: {message}") from error
    except PydanticSerializationError as error:  # a lone surrogate, which is no Unicode
        raise BrokenFile(f"{where} breaks the schema at the whole: {error}") from error


def _shown(value: object) -> str:
    shown = json.dumps(value, default=str)
    return shown if len(shown) <= _LONGEST_VALUE else f"{shown[:_LONGEST_VALUE]}…"


def json_schema(kind: Any) -> Json:
    """The JSON Schema (draft 2020-12) of the stored form of a `kind`."""
    return {"$schema": SCHEMA_URL, **_adapter(kind).json_schema()}


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
