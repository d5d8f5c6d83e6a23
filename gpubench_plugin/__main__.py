# PYTHON_ARGCOMPLETE_OK
"""The ``gpubench`` command, also as ``python -m gpubench_plugin``."""

import sys


def main() -> int:
    """Run the command; one that is interrupted while it is imported ends as any other."""
    try:
        from gpubench_plugin.cli.main import main as run_command

        return run_command()
    except KeyboardInterrupt:
        sys.stderr.write("gpubench: interrupted\n")
        return 130  # 128 + SIGINT, as of a shell


if __name__ == "__main__":
    sys.exit(main())
