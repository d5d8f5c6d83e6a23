"""Stored forms: schema versions of files, and records to and from JSON types.

Keys, descriptions and bounds of a record are metadata of its fields, which pydantic reads. pydantic
is imported with the first record.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from gpubench_plugin.core.errors import BrokenFile
from gpubench_plugin.system import json_files

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import TypeAdapter

    from gpubench_plugin.core.records import Json

SCHEMA_URL: Final = "https://json-schema.org/draft/2020-12/schema"

_Record = TypeVar("_Record")
_VERSION: Final = "schema_version"
_LONGEST_VALUE: Final = 40
"""Characters of a wrong value in a message: enough to recognize it, and one line."""
_OF_KEYS: Final = {"missing": "missing key", "unexpected_keyword_argument": "unknown key"}
"""What is wrong with a key itself, by the type of pydantic's error."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """Kind of file with its ``schema_version``; only the `newest` one is read.

    `kind` completes the message "not a …"; `limit` is the largest size in bytes.
    """

    kind: str
    newest: int
    limit: int = json_files.LIMIT_OF_FACTS_BYTES

    def load(self, path: Path) -> Json:
        """Fields of the file at `path`; raises as :func:`.json_files.load` and :meth:`check`."""
        return self.check(json_files.load(path, limit=self.limit), str(path))

    def parse(self, text: str | bytes, label: str) -> Json:
        """Fields in the JSON `text`, called `label` in messages; raises as :meth:`check`."""
        return self.check(json_files.parse(text, label), label)

    def check(self, fields: object, label: str) -> Json:
        """The `fields`, if they are an object of that version; raises BrokenFile."""
        if not isinstance(fields, dict) or _VERSION not in fields:
            raise BrokenFile(f"{label} is not a {self.kind}: it has no {_VERSION}")
        version = fields[_VERSION]
        if type(version) is not int or version != self.newest:  # True == 1.0 == 1
            raise BrokenFile(
                f"{label}: {_VERSION} {_excerpt(version)}; this gpubench reads {self.newest} only"
            )
        return cast("Json", fields)


def dump(record: object) -> Json:
    """Serialize a dataclass, nested ones included, to JSON types by its stored names."""
    fields: Json = _adapter(cast("Any", type(record))).dump_python(
        record, by_alias=True, warnings=False
    )
    return fields


def restore(kind: type[_Record], fields: object, label: str, *, strict: bool = False) -> _Record:
    """Deserialize the output of :func:`dump`, or its JSON text in bytes, to a record of a `kind`.

    Unless `strict`, as text is read, numeric strings become numbers, and booleans too.

    Raises:
        BrokenFile: ``<label> violates the schema at <key>: <reason>``.
    """
    from pydantic import ValidationError

    adapter: TypeAdapter[_Record] = _adapter(cast("Any", kind))
    try:
        if not strict:
            return adapter.validate_python(fields)
        # In strict mode, pydantic builds a dataclass from an object in JSON text only.
        text = fields if isinstance(fields, bytes) else json.dumps(fields)
        return adapter.validate_json(text, strict=True)
    except ValidationError as error:
        details = error.errors(include_url=False)[0]
        key = ".".join(map(str, details["loc"])) or "the document"
        value = f"{details['msg']}, not {_excerpt(details['input'])}"
        message = _OF_KEYS.get(details["type"], value)
        raise BrokenFile(f"{label} violates the schema at {key}: {message}") from error


def _excerpt(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def json_schema(kind: Any) -> Json:
    """JSON Schema (draft 2020-12) of the stored form of a `kind`."""
    return {"$schema": SCHEMA_URL, **_adapter(kind).json_schema()}


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
