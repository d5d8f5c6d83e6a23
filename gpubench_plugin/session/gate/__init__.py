"""The gate inside pytest: items that fail where a benchmark got worse, and what is said of it."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.session.gate.confirmation import Confirmation
    from gpubench_plugin.session.gate.judgement import (
        NOTHING_MEASURED,
        Judgement,
        Policy,
        ending,
        judged,
        line_of,
    )
    from gpubench_plugin.session.gate.lookup import Lookup
    from gpubench_plugin.session.gate.plugin import (
        Gate,
        Unjudged,
        benchmark_id,
        is_gate,
        measuring_is_off,
        remember_benchmarks,
    )
    from gpubench_plugin.session.gate.removed import Removal
    from gpubench_plugin.session.gate.rounds import freeze

__getattr__ = lazy_names(__name__)
