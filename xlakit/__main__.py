"""``python -m xlakit``: the command ``xlakit``."""

import sys

from xlakit.tools.cli import main

sys.exit(main())
