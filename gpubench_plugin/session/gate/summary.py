"""What a session says of its verdicts, as lines with the markup of pytest's writer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpubench_plugin.compare.threshold import LABEL
from gpubench_plugin.reports.text import printable
from gpubench_plugin.reports.verdict_table import verdict_lines
from gpubench_plugin.session.gate import rules

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpubench_plugin.reports.glyphs import Glyphs
    from gpubench_plugin.reports.terminal import Line
    from gpubench_plugin.session.gate.judgement import Judgement
    from gpubench_plugin.session.gate.lookup import Lookup

_GOOD: Final[Mapping[str, bool]] = {"green": True}
_DOUBTFUL: Final[Mapping[str, bool]] = {"yellow": True}
_BAD: Final[Mapping[str, bool]] = {"red": True}

_KINDS: Final = {
    "history": "history",
    "threshold": LABEL,
    "missing": "there is none",
}


def header(lookup: Lookup) -> list[str]:
    """What stands above the session: the baseline, how it is judged, what fails the gate."""
    settings = lookup.settings
    said = f"baseline: {printable(settings.baseline)} ({_KINDS[lookup.kind]})"
    if settings.gate:
        said += (
            f"; gate: missing={settings.gate_missing}, inconclusive={settings.gate_inconclusive}"
        )
    return [said, *(f"baseline: {printable(note)}" for note in lookup.notes)]


def lines(
    judgement: Judgement, lookup: Lookup, width: int, glyphs: Glyphs, *, interrupted: bool
) -> Iterator[Line]:
    """All verdicts but the unchanged ones, the counts of all, and what the gate makes of them.

    Of a session that was `interrupted` it makes nothing.
    """
    is_gate = bool(lookup.settings.gate)
    comparison = judgement.comparison
    if comparison is None:
        yield ((f"could not be judged: {printable(judgement.problem)}", _BAD),)
    else:
        yield from verdict_lines(comparison, width, glyphs, only_changed=True)
        for said in judgement.policy.spoken(comparison.verdicts) if is_gate else ():
            yield ((said, _BAD if said.endswith("=fail)") else _DOUBTFUL),)
    if not is_gate:
        return
    if interrupted:
        said = f"the session was interrupted; --resume={judgement.run_id} measures the rest"
        yield ((f"gate: not decided: {said}", _DOUBTFUL),)
        return
    if judgement.nothing_measured:
        yield ((rules.NOTHING_MEASURED, _BAD),)
    if judgement.fails:
        failing = len({verdict.id for verdict in judgement.failing})
        counted = f": {failing} benchmark{'s'[: failing != 1]}" if failing else ""
        yield ((f"gate: failed{counted}", _BAD),)
    else:
        yield (("gate: passed", _GOOD),)
