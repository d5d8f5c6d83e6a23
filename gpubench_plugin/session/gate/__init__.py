"""Gate in pytest: items that fail on regressions, and their reports."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.session.gate.confirmation import Confirmation
    from gpubench_plugin.session.gate.judgement import (
        NOTHING_MEASURED,
        GateJudgement,
        Policy,
        gate_outcome,
        judge,
        verdict_line,
    )
    from gpubench_plugin.session.gate.lookup import BaselineLookup
    from gpubench_plugin.session.gate.plugin import (
        GatePlugin,
        UnjudgedGate,
        benchmark_id,
        is_gate,
        measuring_disabled_option,
        remember_benchmarks,
    )
    from gpubench_plugin.session.gate.removed import RemovedBenchmarks
    from gpubench_plugin.session.gate.rounds import fix_rounds

__getattr__ = lazy_names(__name__)
