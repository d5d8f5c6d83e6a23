"""Comparison and judgement: limits, run matching, statistics, verdicts; no file access."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.compare.comparability import (
        Comparability,
        differences_text,
        machine_differences,
        reported_differences,
        settings_differences,
    )
    from gpubench_plugin.compare.comparison import (
        MatchOptions,
        compare_history,
        compare_paired,
        compare_runs,
        compare_threshold,
    )
    from gpubench_plugin.compare.confirmation import RELAUNCHES, alarms, rejudge, withdraw_alarms
    from gpubench_plugin.compare.doubt import unchanged_in_doubt, with_doubts
    from gpubench_plugin.compare.effective_limits import SIDES, Side
    from gpubench_plugin.compare.empirical_bayes import estimate_prior, membership, posterior_spread
    from gpubench_plugin.compare.launch_values import (
        FEWEST,
        LaunchValues,
        effect_text,
        interval_text,
        variation_text,
    )
    from gpubench_plugin.compare.looks import (
        LOOK,
        MOST_PAIRS,
        PAIRS,
        UNCHANGED_FROM,
        UNCHANGED_FROM_CHOICES,
        false_discovery_rate,
    )
    from gpubench_plugin.compare.matched_metrics import (
        HOST_RATE_LIMIT,
        is_device_timed,
        judged_metrics,
        limit_source_of,
        rate_of,
        value_of,
    )
    from gpubench_plugin.compare.matching import WINDOW, match, restricted_to
    from gpubench_plugin.compare.pairs import judge_pairs
    from gpubench_plugin.compare.prediction import (
        level_of,
        noise_about_level,
        noise_of_steps,
        prediction_estimates,
        variance_of_median,
        variance_within,
        widened_noise,
    )
    from gpubench_plugin.compare.scaling import (
        EFFICIENCY,
        SCALING_METRICS,
        SPEED_UP,
        Families,
        families,
        kind_of,
    )
    from gpubench_plugin.compare.statistics import (
        Bools,
        Estimates,
        Floats,
        OwnPairs,
        SignedRanks,
        Spread,
        benjamini_hochberg,
        judge_all_series,
        paired_estimates,
        spread_about_mean,
    )
    from gpubench_plugin.compare.step_time import Subject, merge_parts, subject_of
    from gpubench_plugin.compare.threshold import LABEL, MEDIANS, better_bar, worse_bar

__getattr__ = lazy_names(__name__)
