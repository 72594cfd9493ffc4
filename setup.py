"""Builds the package with the machine code that every process loads; all else stands in pyproject.toml."""

import os
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

_ROOT = Path(__file__).parent.resolve()


class BuildWithMachineCode(build_py):
    """Beside the sources, the machine code; an editable installation has it in the checkout, where git ignores it."""

    def run(self) -> None:
        """Copy the sources and make the machine code."""
        super().run()
        folder = _ROOT if self.editable_mode else Path(self.build_lib).resolve()
        # What builds is the environment's, the package this one.
        path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "XLAKIT_CACHE": "on"}
        command = [sys.executable, "-m", "xlakit.jax.native.ready_made", str(folder)]
        done = subprocess.run(command, env=environment, cwd=_ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            # Processes compile it when they need it, as on a system for which there is none.
            self.warn(f"the package comes without machine code: {done.stderr}")


setup(cmdclass={"build_py": BuildWithMachineCode})
