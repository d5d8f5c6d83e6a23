"""Registry: an index of run directories in SQLite or PostgreSQL.

It can be rebuilt from them at any time.
"""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.results.registry.checking import check
    from gpubench_plugin.results.registry.connection import Connection, connect, is_expected
    from gpubench_plugin.results.registry.database import Database, FileLock
    from gpubench_plugin.results.registry.ingest import RunContents
    from gpubench_plugin.results.registry.locations import absolute_url, location
    from gpubench_plugin.results.registry.rebuilding import rebuild
    from gpubench_plugin.results.registry.registry import Registry, samples, upgrade, values
    from gpubench_plugin.results.registry.spool import Report, ingest_all, store_or_spool
    from gpubench_plugin.results.registry.tables import METADATA, RESULTS, RUNS
    from gpubench_plugin.results.registry.texts import digest

__getattr__ = lazy_names(__name__)
