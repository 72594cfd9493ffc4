"""Writes what jaxlib 0.6.0 gives for the programs: ``python recording.py``, run by a Python that has it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
RECORDED = HERE / "jaxlib_060.json"


def plain(array):
    """An array as JSON."""
    values = array.view(array.real.dtype) if array.dtype.kind == "c" and array.ndim else array
    if array.dtype.kind == "c" and not array.ndim:
        values = np.array([array.real, array.imag])
    return {"dtype": array.dtype.name, "shape": array.shape, "values": np.asarray(values).ravel().tolist()}


def array_of(record):
    """The array of :func:`plain`."""
    dtype = np.dtype(record["dtype"])
    if dtype.kind == "c":
        part = np.asarray(record["values"], np.dtype(f"f{dtype.itemsize // 2}"))
        return part.view(dtype).reshape(record["shape"])
    return np.asarray(record["values"], dtype).reshape(record["shape"])


def main():
    sys.path.insert(0, str(HERE))
    import programs
    from jaxlib import version, xla_client

    assert version.__version__ == "0.6.0"
    client = xla_client.make_cpu_client()
    results = {}
    for name in programs.PROGRAMS:
        try:
            results[name] = [plain(result) for result in programs.run(xla_client, client, name)]
        except Exception as error:
            print(f"{name}: {error}", file=sys.stderr)
    lines = [f"{json.dumps(name)}: {json.dumps(found)}" for name, found in results.items()]
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
