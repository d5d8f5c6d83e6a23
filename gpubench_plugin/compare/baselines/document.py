"""``baselines/<name>.json``: what a baseline stands for, as it is stored and shared."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gpubench_plugin.compare.baselines.model import Acceptance, Action, Baseline, Change, replayed
from gpubench_plugin.environment import json_files, stored
from gpubench_plugin.errors import ResultsError
from gpubench_plugin.records import Json
from gpubench_plugin.results import UtcTime

FORMAT: Final = stored.Format(what="baseline of gpubench", newest=2)
"""Version 2 added to a change its `id` and `reset_accepted`; in version 1 every ``set`` reset.

It grows with every change of the format; older files stay readable, newer ones are refused."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class AcceptanceModel(_Model):
    """The run from which on a benchmark has its accepted level."""

    benchmark: str = Field(min_length=1, description="pytest's node id")
    run: str = Field(min_length=1, description="Run id")
    time: UtcTime
    reason: str = Field(min_length=1)


class ChangeModel(_Model):
    """An explicit act that changed the baseline."""

    time: UtcTime
    action: Action
    runs: list[str] = Field(description="Run ids")
    branch: str | None
    benchmark: str = Field(description="The one accepted; empty for the others")
    reason: str
    forced: list[str] = Field(description="What spoke against it and was overruled")
    id: str = Field("", description="Tells apart acts of one moment; not in version 1")
    reset_accepted: bool = Field(
        True, description="Of a set: earlier accepted levels end; so in version 1"
    )

    @model_validator(mode="after")
    def _names_what_is_accepted(self) -> Self:
        if self.action == "accept" and not (self.benchmark and len(self.runs) == 1):
            raise ValueError("an acceptance is of one benchmark in one run")
        return self


class BaselineDocument(_Model):
    """A name, the runs it pins, and the branch whose later runs are further samples."""

    model_config = ConfigDict(title="gpubench baseline")

    schema_version: Literal[1, 2]
    name: str = Field(min_length=1)
    changed: UtcTime = Field(description="Time of the last change")
    removed: bool = Field(description="It stands for nothing any more")
    runs: list[str] = Field(description="Ids of the pinned runs, the oldest first")
    branch: str | None = Field(description="Its later runs are samples; null for none")
    acceptances: list[AcceptanceModel]
    changes: list[ChangeModel] = Field(
        description="All of them, the oldest first; they lead to all the rest"
    )


def to_text(baseline: Baseline) -> str:
    """The text of the file, validated.

    Raises:
        ResultsError: it breaks the schema.
    """
    document: Json = {"schema_version": FORMAT.newest, **json_files.plain(asdict(baseline))}
    document["acceptances"] = list(document["acceptances"].values())
    _validated(document, f"the baseline {baseline.name!r}")
    return json_files.text(document, indent=2) + "\n"


def from_text(text: str | bytes, where: str) -> Baseline:
    """The baseline in `text`; `where` names its place in messages.

    Raises:
        ResultsError: it is no baseline, or newer than this version knows.
    """
    return _baseline(_validated(FORMAT.parsed(text, where), where), where)


def json_schema() -> Json:
    """The JSON Schema (draft 2020-12) of the file."""
    return {"$schema": stored.SCHEMA_URL, **BaselineDocument.model_json_schema()}


def schema_text() -> str:
    """The text of the published schema."""
    return json_files.text(json_schema(), indent=2) + "\n"


def _baseline(document: BaselineDocument, where: str) -> Baseline:
    """The baseline that the changes lead to, which is the one that is stated.

    Raises:
        ResultsError: it is another one: somebody wrote into the file.
    """
    baseline = replayed(document.name, map(_change, document.changes))
    stated = Baseline(
        name=document.name,
        runs=tuple(document.runs),
        branch=document.branch,
        acceptances={a.benchmark: Acceptance(**a.model_dump()) for a in document.acceptances},
        changed=document.changed,
        removed=document.removed,
        changes=baseline.changes,
    )
    for field in fields(Baseline):
        if getattr(stated, field.name) != getattr(baseline, field.name):
            raise ResultsError(
                f"{where} breaks the schema at {field.name}: its changes lead to something else; "
                "it is changed by 'gpubench baseline' and 'gpubench accept' alone"
            )
    return baseline


def _change(model: ChangeModel) -> Change:
    values = model.model_dump()
    return Change(
        **{
            **values,
            "runs": tuple(model.runs),
            "forced": tuple(model.forced),
            "reset_accepted": model.reset_accepted and model.action == "set",
        }
    )


def _validated(document: Any, where: str) -> BaselineDocument:
    try:
        return BaselineDocument.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        raise ResultsError(f"{where} breaks the schema at {place}: {first['msg']}") from error
