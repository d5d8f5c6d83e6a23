"""Reports of the gate: lines for the terminal, and GitHub's job summary and annotations.

The lines are spans with the markup of pytest's writer. GitHub's reports are made where the session
runs in one of its jobs.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpubench_plugin.compare import LABEL
from gpubench_plugin.environment import counted, redacted_command
from gpubench_plugin.reports import BAD, DOUBTFUL, GOOD, printable, verdict_lines
from gpubench_plugin.reports import github as page
from gpubench_plugin.session.gate.judgement import NOTHING_MEASURED, Judgement

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pytest

    from gpubench_plugin.reports import Glyphs, Line
    from gpubench_plugin.session.gate.lookup import Lookup


def told(
    judgement: Judgement, places: Mapping[str, tuple[str, int]], config: pytest.Config
) -> Iterator[str]:
    """Append to the job's summary; the lines to print: annotations, and what went wrong.

    `places` has file, from the rootdir, and line of each benchmark by node id.
    """
    comparison = judgement.comparison
    if comparison is None:
        return
    arguments = [str(argument) for argument in config.invocation_params.args]
    annotations, problem = page.publish(
        comparison,
        dict(_from_workspace(places, config.rootpath)),
        reproduce=["pytest", *redacted_command(arguments)],
        accept=judgement.accepting,
    )
    yield from filter(None, (problem, *annotations))


def _from_workspace(
    places: Mapping[str, tuple[str, int]], root: Path
) -> Iterator[tuple[str, tuple[str, int]]]:
    """The places as the runner names them: from the folder of the checkout."""
    workspace = Path(os.environ.get("GITHUB_WORKSPACE") or root).resolve()
    for node_id, (file, line) in places.items():
        path = (root / file).resolve()
        inside = path.is_relative_to(workspace)
        yield node_id, (path.relative_to(workspace).as_posix() if inside else file, line)


_KINDS: Final = {
    "history": "history",
    "threshold": LABEL,
    "last": f"the last comparable run of this machine; {LABEL}",
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
        yield ((f"could not be judged: {printable(judgement.problem)}", BAD),)
    else:
        shown = comparison
        if lookup.kind == "last":  # a note says enough of a first run
            kept = (v for v in comparison.verdicts if v.metric or v.kind != "no_baseline")
            shown = replace(comparison, verdicts=tuple(kept))
        yield from verdict_lines(shown, width, glyphs, only_changed=True)
        for said in judgement.policy.spoken(comparison.verdicts) if is_gate else ():
            yield ((said, BAD if ": fail (" in said else DOUBTFUL),)
    if not is_gate:
        return
    if interrupted:
        said = f"the session was interrupted; --resume={judgement.run_id} measures the rest"
        yield ((f"gate: not decided: {said}", DOUBTFUL),)
        return
    if judgement.nothing_measured:
        yield ((NOTHING_MEASURED, BAD),)
    if judgement.fails:
        failing = len({verdict.id for verdict in judgement.failing})
        which = f": {counted(failing, 'benchmark')}" if failing else ""
        yield ((f"gate: failed{which}", BAD),)
    elif runs := judgement.runs_needed:
        more = counted(runs, "more run")
        yield ((f"gate: not able to judge (needs {more} of the baseline)", DOUBTFUL),)
    elif undecided := judgement.undecided:
        yield ((f"gate: passed, but {undecided}", DOUBTFUL),)
    else:
        yield (("gate: passed", GOOD),)
