"""Jobs: several processes of JAX that wait for what they are to do, on xlakit or on jaxlib's CPU."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final

PLATFORMS: Final[Mapping[str, Mapping[str, str]]] = {
    "xlakit": {"XLAKIT_AS": "cpu", "JAX_PLATFORMS": "cpu"},
    "jaxlib": {"XLAKIT_AS": "", "JAX_PLATFORMS": "cpu"},
}
# The prefix of the lines of output that are answers.
_ANSWER: Final = "answer: "


class Job:
    """Some processes of some devices each, which run a module's :func:`serve`.

    host: the address of the first one. prefixes: for each process the command that starts it, if there is one.
    """

    def __init__(
        self,
        module: str,
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
                    *(sys.executable, "-m", module, "--serve", str(number), str(processes), f"{host}:{port}"),
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


def serve(arguments: Sequence[str], answer: Callable[..., Any]) -> None:
    """Join the other processes of the job, and answer what is asked, until nothing more is."""
    from xlakit.jax import initialize

    if os.environ.get("XLAKIT_AS"):
        initialize()
    import jax

    number, processes = map(int, arguments[:2])
    jax.distributed.initialize(arguments[2], num_processes=processes, process_id=number)
    for line in sys.stdin:
        print(_ANSWER + json.dumps(answer(*json.loads(line))), flush=True)
