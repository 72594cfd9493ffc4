"""One process of several: runs all programs, and saves the bits of what its devices get."""

import pickle
import sys
from pathlib import Path

import spmd_programs

from xlakit import distributed

folder, reduction, *backends = sys.argv[1:]
cluster = distributed.initialize(devices=spmd_programs.DEVICES, timeout=60, reduction=reduction)
found = {}
for backend in backends:
    for name in spmd_programs.names(backend):
        for device, leaves in zip(
            cluster.local_devices,
            spmd_programs.run(name, backend, cluster.new_execution_context(), cluster.local_devices),
            strict=True,
        ):
            found[backend, name, device] = [(leaf.dtype.str, leaf.shape, leaf.tobytes()) for leaf in leaves]
Path(folder, f"{cluster.process_index}.pickle").write_bytes(pickle.dumps(found))
