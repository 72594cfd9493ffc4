"""Jobs: several processes of JAX that wait for what they are to do, on xlakit or on jaxlib's CPU.

Each process runs this module: ``python -m benchmarks.programs.jax_jobs MODULE:FUNCTION NUMBER PROCESSES ADDRESS``.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final

PLATFORMS: Final[Mapping[str, Mapping[str, str]]] = {
    "xlakit": {"XLAKIT_AS": "cpu", "JAX_PLATFORMS": "cpu"},
    "jaxlib": {"XLAKIT_AS": "", "JAX_PLATFORMS": "cpu"},
}
# The prefix of the lines of output that are answers.
_ANSWER: Final = "answer: "


class Job:
    """Some processes of some devices each, which answer requests by a function.

    answer: the function, as ``MODULE:FUNCTION``; its arguments and results are JSON. host: the address of the first
    process. prefixes: for each process the command that starts it, if there is one.
    """

    def __init__(
        self,
        answer: str,
        platform: str,
        processes: int,
        devices: int = 1,
        settings: Mapping[str, str] | None = None,
        *,
        host: str = "localhost",
        prefixes: Sequence[Sequence[str]] = (),
    ) -> None:
        with socket.socket() as probe:
            probe.bind(("localhost", 0))
            port = probe.getsockname()[1]
        environment = {
            **os.environ,
            **PLATFORMS[platform],
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
            **(settings or {}),
        }
        self._processes = [
            subprocess.Popen(
                [
                    *(prefixes[number] if prefixes else ()),
                    *(sys.executable, "-m", __name__, answer, str(number), str(processes), f"{host}:{port}"),
                ],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
            )
            for number in range(processes)
        ]  # fmt: skip

    def ask(self, *what: Any) -> list[Any]:
        """Send a request to all processes; gives their answers."""
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.write(json.dumps(what) + "\n")
                process.stdin.flush()
        return [_answer(process) for process in self._processes]

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the processes: those that wait for a request end by themselves when their input closes."""
        for process in self._processes:
            if kind is not None:
                process.kill()
            elif process.stdin is not None:
                process.stdin.close()
        for process in self._processes:
            process.wait()


def _answer(process: subprocess.Popen[str]) -> Any:
    if process.stdout is None:
        raise RuntimeError("the process has no output")
    for line in process.stdout:
        if line.startswith(_ANSWER):
            return json.loads(line.removeprefix(_ANSWER))
    raise RuntimeError(f"a process has ended, with {process.wait()}")


def _serve(answer: str, number: str, processes: str, address: str) -> None:
    """Join the other processes of the job, and answer what is asked, until nothing more is."""
    from xlakit.jax import initialize

    if os.environ.get("XLAKIT_AS"):
        initialize()
    import jax

    jax.distributed.initialize(address, num_processes=int(processes), process_id=int(number))
    module, _, name = answer.partition(":")
    function = getattr(importlib.import_module(module), name)
    for line in sys.stdin:
        print(_ANSWER + json.dumps(function(*json.loads(line))), flush=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
