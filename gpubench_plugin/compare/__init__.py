"""Comparing and judging: limits, matching of runs, statistics, verdicts. Knows no files."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.compare.comparability import (
        Likeness,
        in_words,
        machine_differences,
        settings_differences,
        told_differences,
    )
    from gpubench_plugin.compare.comparison import (
        Options,
        compare_history,
        compare_paired,
        compare_runs,
        compare_threshold,
    )
    from gpubench_plugin.compare.confirmation import AGAIN, alarms, confirmed, unconfirmed
    from gpubench_plugin.compare.doubt import doubted, unchanged_in_doubt
    from gpubench_plugin.compare.limits import SIDES, Side
    from gpubench_plugin.compare.looks import (
        LOOK,
        MOST_PAIRS,
        PAIRS,
        UNCHANGED_FROM,
        UNCHANGED_FROM_CHOICES,
        rate_of_look,
    )
    from gpubench_plugin.compare.matched_metrics import (
        HOST_RATE_LIMIT,
        device_timed,
        gated,
        limiting_of,
        rate_of,
        value_of,
    )
    from gpubench_plugin.compare.matching import WINDOW, Matched, match
    from gpubench_plugin.compare.moderation import membership, moderated, prior_of
    from gpubench_plugin.compare.pairs import judge_pairs
    from gpubench_plugin.compare.plain import LABEL, better_bar, worse_bar
    from gpubench_plugin.compare.prediction import (
        level_of,
        noise_about_level,
        noise_of_steps,
        noise_with,
        predicted,
        variance_of_median,
        variance_within,
    )
    from gpubench_plugin.compare.scaling import EFFICIENCY, SPEED_UP, Families, families, kind_of
    from gpubench_plugin.compare.series import (
        FEWEST,
        Series,
        change,
        percent,
        too_loud,
        within,
    )
    from gpubench_plugin.compare.statistics import (
        Bools,
        Estimates,
        Floats,
        Own,
        Ranks,
        Spread,
        benjamini_hochberg,
        find,
        paired,
        spread_about_mean,
    )
    from gpubench_plugin.compare.step_time import Subject, subject_of, whole

__getattr__ = lazy_names(__name__)
