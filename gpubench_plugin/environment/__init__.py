"""Environment of a run: devices, hardware, code, processes, files."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.environment.child_process import ChildError, facts_of, last_lines
    from gpubench_plugin.environment.code import LoadedFiles, digests, file_fingerprint
    from gpubench_plugin.environment.device_errors import (
        failed_allocation,
        failures_as_warnings,
        is_device_failure,
        is_only_lost_context,
        is_out_of_memory,
        lost_context,
        lost_context_text,
        query_context,
    )
    from gpubench_plugin.environment.devices import Device, synchronize, timed_s, too_few_reason
    from gpubench_plugin.environment.files import open_to_write, sync_folder, write
    from gpubench_plugin.environment.fingerprints import (
        ABSENT,
        change_text,
        differences,
        fingerprint,
        fingerprint_of,
        flat,
        informative_facts,
        is_recent_fact,
        machine_facts,
        tolerates_unknown,
    )
    from gpubench_plugin.environment.git import HOOK_VARIABLES, commit_facts, run_git
    from gpubench_plugin.environment.hardware import (
        cpu_facts,
        gpu_facts,
        held_clock_mhz,
        memory_bytes,
        usable_cores,
    )
    from gpubench_plugin.environment.helper_threads import (
        HelperThread,
        helper_idents,
        record_in,
        recorded_idents,
        without_helpers,
    )
    from gpubench_plugin.environment.instrumentation import (
        interpreter_facts,
        interpreter_options,
        is_instrumented,
    )
    from gpubench_plugin.environment.json_files import MALFORMED, not_written, text
    from gpubench_plugin.environment.locks import KernelLock, locked
    from gpubench_plugin.environment.process_identity import ProcessIdentity, namespace_id
    from gpubench_plugin.environment.quantities import count, quantity
    from gpubench_plugin.environment.redaction import (
        HIDDEN,
        find_passwords,
        is_secret_name,
        recorded_variables,
        redact,
        redacted_command,
    )
    from gpubench_plugin.environment.spreadsheet import Cell, csv_text
    from gpubench_plugin.environment.system_facts import collect, package_versions
    from gpubench_plugin.environment.timeout_clock import TimeoutClock, is_stopped, poll_interval_s
    from gpubench_plugin.environment.words import (
        MOST_DIGITS,
        Scale,
        byte_size,
        change_percentage,
        counted,
        decimal_rate,
        duration,
        listed,
        percentage,
        plural,
        ratio,
        rough_duration,
        scaled,
        short_commit,
        significant,
    )

__getattr__ = lazy_names(__name__)
