"""Folders that ``XLAKIT_DUMP_TO`` wrote, read again: the program, and the arguments of its first call."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from xlakit.cpu.debugging.dumping import MANIFEST, MODULE, argument_names
from xlakit.errors import ArgumentError, FormatError, naming_file
from xlakit.formats.detect import snapshot_of
from xlakit.formats.files import write_whole
from xlakit.formats.hlo_proto import Snapshot
from xlakit.formats.npz import write_arrays
from xlakit.ir.instruction import HloModule
from xlakit.ir.operation import Array
from xlakit.tools.inputs import made_up, read_inputs
from xlakit.tools.shards import Devices

# How files of NumPy begin: those of one array, and archives.
_NUMPY = (b"\x93NUMPY", b"PK")


@dataclass(frozen=True, slots=True)
class DumpedProgram:
    """A program in a folder: its module, with the devices that ran it, its seed, and where its arguments are."""

    module: HloModule
    seed: int
    arguments: Path


def read_dump(path: str) -> DumpedProgram:
    """The program in a folder. Raises FormatError where it is none, or damaged; and what reading the module raises."""
    folder = Path(path)
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        replicas, partitions, seed = (int(manifest[k]) for k in ("num_replicas", "num_partitions", "seed"))
    except FileNotFoundError:
        raise FormatError(
            f"{path} is a folder without {MANIFEST}", hint="give a file, or a folder that XLAKIT_DUMP_TO wrote"
        ) from None
    except (ValueError, KeyError, TypeError):
        raise FormatError(f"{folder / MANIFEST} is damaged", hint="dump the program again") from None
    text = (folder / MODULE).read_text(encoding="utf-8")
    module = HloModule.from_text(text, name=str(folder / MODULE))
    return DumpedProgram(module.replace(replica_count=replicas, num_partitions=partitions), seed, folder / "arguments")


def write_dump(path: str, module: HloModule, arguments: Sequence[Sequence[Array]], seed: int) -> None:
    """Write a program into a new folder, with the arrays of each device's arguments, as :func:`read_dump` reads it.

    Raises ArgumentError where the folder is there and not empty, OSError where it cannot be written.
    """
    folder = Path(path)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ArgumentError(f"{path} is there already", hint="name a new folder, or an empty one")
    (folder / "arguments").mkdir(parents=True, exist_ok=True)
    write_whole(folder / MODULE, module.to_text().rstrip("\n") + "\n")
    names = [f"arguments/device_{device:04}.npz" for device in range(len(arguments))]
    for name, arrays in zip(names, arguments, strict=True):
        write_arrays(folder / name, dict(zip(argument_names(module), arrays, strict=True)))
    manifest = {
        "module": module.name,
        "process": os.getpid(),
        "num_replicas": module.replica_count,
        "num_partitions": module.num_partitions,
        "seed": seed,
        "files": [MODULE],
        "arguments": names,
    }
    write_whole(folder / MANIFEST, json.dumps(manifest, indent=1) + "\n")


def given_values(devices: Devices, input_path: str | None, seed: int) -> tuple[Devices, list[Any]]:
    """The arguments that a file, a snapshot or a folder has, or that are made up from a seed; whole arrays.

    A folder has a file for each device, named as :func:`read_dump` expects. If there are several files, the returned
    devices hold the arguments of each device, and there are no whole arrays.
    """
    if input_path is None:
        return devices, made_up(devices.module.entry, devices.program, seed)
    snapshot = snapshot_in(input_path)
    if snapshot is not None:
        device_arguments = [[argument.to_numpy() for argument in arguments] for arguments in snapshot.arguments]
    elif not Path(input_path).is_dir():
        return devices, read_inputs(input_path, devices.program)
    else:
        shape = replace(devices.module.entry.program_shape, parameter_names=())
        device_arguments = [read_inputs(str(file), shape) for file in sorted(Path(input_path).glob("device_*.npz"))]
        if not device_arguments:
            raise ArgumentError(
                f"{input_path} is a folder without arguments: it has no device_0000.npz",
                hint="give the folder 'arguments' of one that XLAKIT_DUMP_TO wrote, or a file of NumPy arrays",
            )
    if len(device_arguments) != devices.count:
        raise ArgumentError(
            f"the program runs on {devices.count} devices, and {input_path} has arguments of {len(device_arguments)}",
            hint="give those of a program that was called on all of its devices; or --seed N, which makes some up",
        )
    return (devices, device_arguments[0]) if devices.count == 1 else (devices.with_arguments(device_arguments), [])


def snapshot_in(path: str) -> Snapshot | None:
    """The arguments and result in a file, if it is a snapshot proto; None for NumPy's files and any other."""
    file = Path(path)
    if path == "-" or not file.is_file() or file.suffix in (".npz", ".npy"):
        return None
    with naming_file(path):
        data = file.read_bytes()
    try:
        return None if data.startswith(_NUMPY) else snapshot_of(data, path)
    except FormatError:
        # Ignored, as the file may be meant as arrays; reading it as such raises a better error.
        return None
