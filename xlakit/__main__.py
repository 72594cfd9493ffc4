"""``python -m xlakit`` and the command ``xlakit``."""

import sys


def main() -> int:
    """Run the command line; gives the exit status."""
    try:
        # Imported inside of the block: Ctrl-C during the import ends the command like later ones.
        from xlakit.tools import cli, warned

        warned.as_lines()
        return cli.main()
    except KeyboardInterrupt:
        print("xlakit: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
