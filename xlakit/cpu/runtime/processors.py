"""The number of processors that this process may use."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from xlakit.errors import ArgumentError


def processor_count(root: Path = Path("/")) -> int:
    """The number of processors for this process: those that it may run on, limited by the quota of its container.

    root: the root of the file system with the control groups.
    """
    if hasattr(os, "sched_getaffinity"):
        allowed = len(os.sched_getaffinity(0))
    else:
        allowed = os.cpu_count() or 1
    quota = container_quota(root)
    return allowed if quota is None else max(1, min(allowed, -int(-quota // 1)))


def default_threads(processors: int) -> int:
    """The default number of threads of a job: one for each processor, at most XLAKIT_THREADS.

    Raises ArgumentError where the environment variable is not a positive number.
    """
    text = os.environ.get("XLAKIT_THREADS")
    if not text:
        return processors
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise ArgumentError(
            f"XLAKIT_THREADS is {text!r}, not a positive number", hint="set it to a number such as 4, or unset it"
        )
    return min(processors, number)


def container_quota(root: Path = Path("/")) -> float | None:
    """The number of processors whose time the control groups of this process allow; None without a limit."""
    quotas: list[float] = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2) if line.count(":") >= 2 else ("", "-", "/")
        group = path.lstrip("/")
        if controllers == "":
            quotas += _quotas(root / "sys/fs/cgroup", group, _quota_of_version_2)
        elif "cpu" in controllers.split(","):
            for mounted in (controllers, "cpu"):
                quotas += _quotas(root / "sys/fs/cgroup" / mounted, group, _quota_of_version_1)
    return min(quotas, default=None)


def _quotas(mounted: Path, group: str, quota: Callable[[Path], float | None]) -> list[float]:
    # The limits of outer groups apply as well. Inside of a container the path may be that of the host: then only the
    # outermost directory exists.
    folders = [mounted / group, *(mounted / group).parents] if group else [mounted]
    mounted_folders = [folder for folder in folders if folder == mounted or mounted in folder.parents]
    return [limit for folder in mounted_folders if (limit := quota(folder)) is not None]


def _quota_of_version_2(folder: Path) -> float | None:
    words = _read(folder / "cpu.max").split()
    if len(words) != 2 or words[0] == "max":
        return None
    return int(words[0]) / int(words[1])


def _quota_of_version_1(folder: Path) -> float | None:
    quota, period = _read(folder / "cpu.cfs_quota_us").strip(), _read(folder / "cpu.cfs_period_us").strip()
    if not quota or not period or int(quota) <= 0:
        return None
    return int(quota) / int(period)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        # The system has no control groups, or the group is not visible from here.
        return ""
