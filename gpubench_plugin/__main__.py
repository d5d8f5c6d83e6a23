"""The ``gpubench`` command, as ``python -m gpubench_plugin``."""

import sys

from gpubench_plugin.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
