"""``--limit`` of ``gpubench compare``: of one metric, or of all that are judged."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from gpubench_plugin.compare.gated import gated
from gpubench_plugin.config.limits import Limit
from gpubench_plugin.errors import UsageProblem, not_one_of
from gpubench_plugin.runs import Run

_OF_A_METRIC: Final = re.compile(r"\s*(?P<metric>[^\s<>=%]+)\s*=\s*(?P<limit>.*)", re.DOTALL)

_BOUND: Final = re.compile(r"\s*(?P<metric>[^\s<>=%]+)\s*(?P<limit>[<>]=.*)", re.DOTALL)
"""A fixed bound as a formula would have it, without the sign of equality behind the metric."""


@dataclass(frozen=True, kw_only=True)
class LimitOptions:
    """`by_metric` holds the limits of single metrics, `general` that of all others, or nothing."""

    by_metric: Mapping[str, str] = field(default_factory=dict)
    general: str = ""

    @classmethod
    def parse(cls, texts: Sequence[str]) -> LimitOptions:
        """What the options say; of two for the same metric the last one counts.

        Raises:
            UsageProblem: one is no limit, or a fixed bound that does not say of which metric.
        """
        by_metric, general = {}, ""
        for text in texts:
            match = _OF_A_METRIC.fullmatch(text)
            if match:
                metric = match["metric"]
                by_metric[metric] = Limit.parse(match["limit"], f"--limit={metric}").text
                continue
            if bound := _BOUND.fullmatch(text):
                meant = f"{bound['metric']}={bound['limit'].strip()}"
                raise UsageProblem(
                    f"--limit: {text!r} is no limit (did you mean --limit={meant!r}?)"
                )
            limit = Limit.parse(text, "--limit")
            if limit.kind != "relative":
                raise UsageProblem(
                    f"--limit: {text!r} is a fixed bound; say of which metric: "
                    f"--limit='step_time_s={limit.text}'"
                )
            general = limit.text
        return cls(by_metric=by_metric, general=general)

    def applied(self, heads: Sequence[Run], bases: Sequence[Run]) -> list[Run]:
        """The `heads` with the general limit as the limit of each metric that would be judged.

        Raises:
            UsageProblem: no benchmark of any of the runs has a metric that is named.
        """
        known = dict.fromkeys(
            metric
            for run in (*heads, *bases)
            for result in run.results.values()
            for metric in result.metrics
        )
        for metric in self.by_metric:
            if known and metric not in known:
                raise not_one_of("--limit", metric, known)
        return [self._general(head) for head in heads] if self.general else list(heads)

    def _general(self, run: Run) -> Run:
        results = {
            name: replace(result, limits=dict.fromkeys(gated(result), self.general))
            for name, result in run.results.items()
        }
        return replace(run, results=results)
