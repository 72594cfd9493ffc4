"""Network namespaces with links of limited bandwidth: processes in them are as on machines of their own."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final

_BRIDGE: Final = "xlakit-hub"
_SUBNET: Final = "10.203.78"
_ETC: Final = Path("/etc/netns")


def _do(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


class LimitedLinks:
    """``count`` namespaces, each with a link to a common switch; ``rate`` of each direction as tc's tbf takes it.

    The caller needs root, ``ip`` and ``tc``.
    """

    def __init__(self, count: int, rate: str) -> None:
        self._names = [f"xlakit-m{number}" for number in range(count)]
        self._rate = rate

    @property
    def host(self) -> str:
        """The address of the first namespace."""
        return f"{_SUBNET}.1"

    @property
    def prefixes(self) -> list[list[str]]:
        """For each namespace the command that runs another one in it."""
        return [["ip", "netns", "exec", name] for name in self._names]

    def __enter__(self) -> LimitedLinks:
        self._remove()
        _do("ip", "link", "add", _BRIDGE, "type", "bridge")
        _do("ip", "link", "set", _BRIDGE, "up")
        for number, name in enumerate(self._names):
            outer, inner = f"{name}-o", f"{name}-i"
            _do("ip", "netns", "add", name)
            _do("ip", "link", "add", outer, "type", "veth", "peer", "name", inner, "netns", name)
            _do("ip", "link", "set", outer, "master", _BRIDGE, "up")
            _do("ip", "-n", name, "addr", "add", f"{_SUBNET}.{number + 1}/24", "dev", inner)
            for device in ("lo", inner):
                _do("ip", "-n", name, "link", "set", device, "up")
            # Gloo listens at the address that the host's name has; ip shows a namespace the files of this folder.
            folder = _ETC / name
            folder.mkdir(parents=True, exist_ok=True)
            names = f"127.0.0.1 localhost\n{_SUBNET}.{number + 1} {socket.gethostname()}\n"
            (folder / "hosts").write_text(names, encoding="utf-8")
            # What arrives here, and what leaves.
            limit = ["root", "tbf", "rate", self._rate, "burst", "128kb", "latency", "200ms"]
            _do("tc", "qdisc", "add", "dev", outer, *limit)
            _do("tc", "-n", name, "qdisc", "add", "dev", inner, *limit)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        for name in self._names:
            shutil.rmtree(_ETC / name, ignore_errors=True)
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
            subprocess.run(["ip", "link", "del", f"{name}-o"], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", _BRIDGE], capture_output=True, check=False)
