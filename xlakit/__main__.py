"""``python -m xlakit`` and the command ``xlakit``."""

import sys


def main() -> int:
    """Run the command line; gives the exit status."""
    try:
        # Importing it takes a moment, in which Ctrl-C ends the command as it does later.
        from xlakit.tools import cli

        return cli.main()
    except KeyboardInterrupt:
        print("xlakit: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
