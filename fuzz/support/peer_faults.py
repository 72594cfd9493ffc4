"""Faults of JAX's programs on several processes: three are started, of which the last meets a fault.

Injecting one ends when all others have said how they ended; its error is what they said. Then these run a program on
their own devices. Faults of the network need two network namespaces, so the rights to make them, and iproute2.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from fuzz.support.fault_bench import Bench, Case, Cases, Injection

PEER_CASES = Cases()
NETWORK_CASES = Cases()
NETEM_CASES = Cases()
_START_SECONDS = 70.0
_END_SECONDS = 40.0
_ROOT = Path(__file__).parents[2]
_NAMESPACES = ("xlakit-a", "xlakit-b")
_ADDRESSES = ("10.203.77.1", "10.203.77.2")
_LINKS = ("xlakit-va", "xlakit-vb")
_OVER = "is over"
# The time in which a process has begun to wait, in seconds.
_MOMENT = 0.5


class PeersEndedError(Exception):
    """What the processes said."""


def has_jax() -> bool:
    """Whether programs of JAX can run on several processes here."""
    return all(importlib.util.find_spec(name) for name in ("jax", "zmq"))


def network_cases() -> list[Case]:
    """The faults of networks that can be made here: none without namespaces, and none that need netem without that."""
    if not (shutil.which("ip") and shutil.which("tc")):
        return []
    name = "xlakit-try"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        return []
    try:
        disturb = ["tc", "-n", name, "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"]
        has_netem = not subprocess.run(disturb, capture_output=True, check=False).returncode
    finally:
        _do("ip", "netns", "del", name)
    return [*NETWORK_CASES.listed, *(NETEM_CASES.listed if has_netem else [])]


def _do(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


class Cable:
    """Two network namespaces, and the cable between them."""

    def __enter__(self) -> Cable:
        for name in _NAMESPACES:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
            _do("ip", "netns", "add", name)
        _do("ip", "link", "add", _LINKS[0], "type", "veth", "peer", "name", _LINKS[1])
        for name, link, address in zip(_NAMESPACES, _LINKS, _ADDRESSES, strict=True):
            _do("ip", "link", "set", link, "netns", name)
            _do("ip", "-n", name, "addr", "add", f"{address}/24", "dev", link)
            for device in ("lo", link):
                _do("ip", "-n", name, "link", "set", device, "up")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in _NAMESPACES:
            _do("ip", "netns", "del", name)

    def plug(self, state: str) -> None:
        """Plug it in or out: "up" or "down"."""
        _do("ip", "-n", _NAMESPACES[0], "link", "set", _LINKS[0], state)

    def disturb(self, *how: str) -> None:
        """Let tc's netem disturb what both ends send."""
        for name, link in zip(_NAMESPACES, _LINKS, strict=True):
            _do("tc", "-n", name, "qdisc", "replace", "dev", link, "root", "netem", *how)


class Peers:
    """Processes that wait for the fault. prefixes: what starts each of them."""

    def __init__(self, fault: str, timeout: float, prefixes: Sequence[Sequence[str]], host: str = "localhost") -> None:
        self._folder = tempfile.TemporaryDirectory()
        with socket.socket() as probe:
            probe.bind(("", 0))
            coordinator = f"{host}:{probe.getsockname()[1]}"
        environment = {
            **os.environ,
            "XLAKIT_AS": "cpu",
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": "--xla_force_host_platform_device_count=1",
            "PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")]),
        }
        self._outputs = [Path(self._folder.name, str(rank)) for rank in range(len(prefixes))]
        self.processes: list[subprocess.Popen[bytes]] = []
        for rank, (prefix, output) in enumerate(zip(prefixes, self._outputs, strict=True)):
            command = [
                *prefix,
                sys.executable,
                "-m",
                "fuzz.support.workers.peer_worker",
                fault,
                str(rank),
                str(len(prefixes)),
            ]
            with output.open("wb") as said:
                self.processes.append(
                    subprocess.Popen(
                        [*command, coordinator, str(timeout)], stdin=subprocess.PIPE, stdout=said,
                        stderr=subprocess.STDOUT, env=environment, cwd=_ROOT,
                    )
                )  # fmt: skip
        self._read = 0
        self.wait("is process", range(len(prefixes)), _START_SECONDS)

    def said(self) -> list[str]:
        """What all have said."""
        texts = [output.read_text("utf-8", "replace") for output in self._outputs]
        return [line for text in texts for line in text.splitlines() if re.match(r"process \d+: ", line)]

    def wait(self, text: str, ranks: Sequence[int], seconds: float, times: int = 1) -> None:
        """Wait until some have said something so many times; raises RuntimeError where they do not."""
        deadline = time.monotonic() + seconds
        while not all(
            sum(line.startswith(f"process {rank}: {text}") for line in self.said()) >= times for rank in ranks
        ):
            if time.monotonic() > deadline:
                texts = [output.read_text("utf-8", "replace")[-2000:] for output in self._outputs]
                self.end()
                raise RuntimeError(f"not all processes have said '{text}':\n" + "\n".join(texts))
            time.sleep(0.01)

    def go(self) -> None:
        """Let all run the program again."""
        for process in self.processes:
            if process.stdin is not None:
                process.stdin.write(b"\n")
                process.stdin.flush()

    def end(self) -> None:
        """End all that is left."""
        for process in self.processes:
            process.kill()
            process.wait()


def _enter(name: str, fault: str, *says: str, waits: bool = False, interrupts: bool = False) -> None:
    """A fault that the last of three processes meets; ``interrupts``: the first one gets Ctrl-C while it waits."""

    @PEER_CASES.case(name, PeersEndedError, *says, waits=waits)
    def inject(bench: Bench) -> Injection:
        peers = Peers(fault, bench.timeout, [[], [], []])
        others = range(2)

        def run() -> None:
            before = len(peers.said())
            peers.go()
            if interrupts:
                time.sleep(_MOMENT)
                peers.processes[0].send_signal(signal.SIGINT)
            peers.wait(_OVER, others, _END_SECONDS)
            lines = [line for line in peers.said() if _OVER not in line and ": is process" not in line]
            raise PeersEndedError("\n".join(lines if before else []))

        def works() -> bool:
            lines = peers.said()
            peers.end()
            # Those that are left have run a program of their own, unless there are no devices.
            return fault == "never joins" or all(f"process {rank}: gives 2" in lines for rank in others)

        return run, works


_NAME = r"process 2 \(device 2\)"


def _both(text: str) -> tuple[str, ...]:
    return tuple(rf"process {rank}: \w+: .*{text}" for rank in range(2))


_enter("a process of JAX that is killed", "is killed", *_both(rf"{_NAME} is gone: its connection has ended, after"))
_enter(
    "a process of JAX that is killed while data move",
    "is killed while data move",
    *_both(rf"{_NAME} is gone: its connection has ended, after"),
)
_enter("a process of JAX that is stopped", "is stopped", *_both(rf"{_NAME} does not answer, after"), waits=True)
_enter(
    "a process of JAX with an uncaught error",
    "raises",
    *_both(rf"{_NAME} has ended with an error: RuntimeError: this process is ill, after"),
)
_enter("a process of JAX that leaves early", "leaves", *_both(rf"{_NAME} has ended, after"))
_enter(
    "a process of JAX that does not come to a program",
    "stays away",
    *_both(rf"{_NAME} has not begun the program \(it runs no program\), after"),
    waits=True,
)
_enter(
    "Ctrl-C in a process of JAX that waits",
    "stays away",
    r"process 0: KeyboardInterrupt: ",
    r"process 1: \w+: .*process 0 \(device 0\)",
    interrupts=True,
)
_enter("a process of JAX that joins late", "joins late", *(rf"process {rank}: gives 3" for rank in range(2)))
_enter(
    "processes of JAX that leave a job for another one",
    "is in another job",
    *(rf"process {rank}: gives 3" for rank in range(2)),
)
_enter(
    "a process of JAX that runs another program",
    "runs another program",
    *_both("the processes run different programs:"),
    r"process 2: \w+: .*the processes run different programs:",
)
_enter(
    "a process of JAX that never asks for devices",
    "never joins",
    *_both(r"process 2 has not said '\S+/devices/2'"),
    waits=True,
)


def _on_network(
    name: str,
    *says: str,
    waits: bool = False,
    before: Callable[[Cable], None],
    after: Callable[[Cable], None],
    cases: Cases = NETWORK_CASES,
) -> None:
    """A fault of the network between two processes, which run a program during and after it."""

    @cases.case(name, PeersEndedError, *says, waits=waits)
    def inject(bench: Bench) -> Injection:
        cable = Cable().__enter__()
        try:
            peers = Peers("", bench.timeout, [["ip", "netns", "exec", space] for space in _NAMESPACES], _ADDRESSES[0])
        except BaseException:
            cable.__exit__(None, None, None)
            raise

        def run() -> None:
            before(cable)
            peers.go()
            peers.wait(_OVER, range(2), _END_SECONDS)
            raise PeersEndedError(
                "\n".join(line for line in peers.said() if _OVER not in line and ": is process" not in line)
            )

        def works() -> bool:
            try:
                seen = len(peers.said())
                after(cable)
                peers.go()
                peers.wait(_OVER, range(2), _END_SECONDS, times=2)
                return sum(line.endswith("gives 2") for line in peers.said()) >= 2 and len(peers.said()) > seen
            finally:
                peers.end()
                cable.__exit__(None, None, None)

        return run, works


def _nothing(cable: Cable) -> None:
    """Leave it as it is."""


def _cut_for_a_moment(cable: Cable) -> None:
    cable.plug("down")
    time.sleep(0.4)
    cable.plug("up")


_GIVE = ("process 0: gives 2", "process 1: gives 2")

for _name, _how in (
    ("a network with 50 ms of delay", ("delay", "50ms", "10ms")),
    ("a network that loses 10 %", ("loss", "10%")),
):
    _on_network(_name, *_GIVE, before=lambda cable, how=_how: cable.disturb(*how), after=_nothing, cases=NETEM_CASES)
_on_network("a cable that is out for a moment", *_GIVE, before=_cut_for_a_moment, after=_nothing)
_on_network(
    "a cable that is cut",
    r"process 0: \w+: .*process 1 \(device 1\) does not answer, after",
    r"process 1: \w+: .*process 0 \(device 0\) does not answer, after",
    waits=True,
    before=lambda cable: cable.plug("down"),
    after=lambda cable: cable.plug("up"),
)
