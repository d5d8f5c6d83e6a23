"""Reports for people: pure functions from records to text."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.reports.curves import curve_lines, curves_as_json
    from gpubench_plugin.reports.dot_plot import Dot, dot_lines
    from gpubench_plugin.reports.explanation import (
        Explanation,
        LookVerdicts,
        PlotPoint,
        Recommendation,
        explanation_as_json,
        explanation_lines,
        split_verdict,
    )
    from gpubench_plugin.reports.live import (
        current_line,
        ended_line,
        live_json,
        live_lines,
        run_line,
        status_text,
    )
    from gpubench_plugin.reports.markup import (
        BAD,
        BOLD,
        DOUBTFUL,
        GOOD,
        PLAIN,
        Line,
        Markup,
        Span,
        painted,
        plain,
    )
    from gpubench_plugin.reports.names import ShortNames, name_room, short_names
    from gpubench_plugin.reports.operators import operator_lines
    from gpubench_plugin.reports.run_list import run_as_json, run_in_full, run_table
    from gpubench_plugin.reports.scaling import scaling_lines
    from gpubench_plugin.reports.side_by_side import side_by_side_lines
    from gpubench_plugin.reports.status import StatusLine, status_line
    from gpubench_plugin.reports.table import column, lines, wrapped
    from gpubench_plugin.reports.terminal import closing_lines, header_lines, summary_lines
    from gpubench_plugin.reports.text import (
        ASCII,
        UNICODE,
        Glyphs,
        cut,
        evenly_chosen,
        fill,
        glyphs_for,
        printable,
        seconds,
        shorten,
        sparkline,
        width,
    )
    from gpubench_plugin.reports.variants import variant_lines
    from gpubench_plugin.reports.verbose_line import result_line
    from gpubench_plugin.reports.verdict_table import verdict_lines
    from gpubench_plugin.reports.verdicts import (
        ORDER,
        change_text,
        headline,
        mark,
        number,
        signed,
        worst_first,
    )

__getattr__ = lazy_names(__name__)
