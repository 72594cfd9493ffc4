"""A program that calls a function of ours, and one of C, and is fed while it runs.

python examples/custom_calls_and_feeds.py

Each round of the loop takes the next array of the infeed, has C scale it and Python smooth it, and puts the result into
the outfeed. One thread feeds and another one reads, through queues that hold two arrays, so neither can run far ahead.
"""

import ctypes
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path

import numpy as np

import xlakit as xla

ROUNDS, SIZE = 5, 4

# -- a function in C: it gets the memory of its result, and of each operand ------------------------

SOURCE = """
void scale(void* out, void** in) {
  const float* values = in[0];
  const float factor = *(const float*)in[1];
  for (int i = 0; i < 4; ++i) ((float*)out)[i] = values[i] * factor;
}
"""


def compiled_scale(folder):
    """``scale`` in a shared library."""
    (folder / "scale.c").write_text(SOURCE)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", folder / "scale.so", folder / "scale.c"], check=True)
    return ctypes.CDLL(str(folder / "scale.so")).scale


# Without a C compiler at hand, anything with the same signature will do.
@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
def scale_of_ctypes(out, operands):
    values = (ctypes.c_float * SIZE).from_address(operands[0])
    factor = ctypes.c_float.from_address(operands[1]).value
    (ctypes.c_float * SIZE).from_address(out)[:] = [value * factor for value in values]


# -- a function in Python: it gets NumPy arrays and returns one ------------------------------------


def smooth(values):
    return (values + np.roll(values, 1)) / np.float32(2)


# -- the program -----------------------------------------------------------------------------------

shape = xla.make_shape(xla.F32, (SIZE,))
builder = xla.XlaBuilder("fed")
factor = xla.parameter(builder, 0, xla.make_shape(xla.F32), "factor")


def goes_on(state):
    return xla.get_tuple_element(state, 0) < ROUNDS


def one_round(state):
    count, factor = (xla.get_tuple_element(state, i) for i in range(2))
    values = xla.infeed(state.builder, shape)
    scaled = xla.custom_call(state.builder, "scale", [values, factor], shape)
    xla.outfeed(xla.custom_call(state.builder, "smooth", [scaled], shape))
    return count + 1, factor


xla.while_(goes_on, one_round, (xla.constant(builder, 0), factor))
computation = builder.build()

with tempfile.TemporaryDirectory() as folder:
    scale = compiled_scale(Path(folder)) if shutil.which("cc") else scale_of_ctypes
    execution_context = xla.ExecutionContext(timeout=10, queue_items=2)
    run = xla.compile(computation, execution_context=execution_context, custom_calls={"scale": scale, "smooth": smooth})


def feed():
    for number in range(ROUNDS):
        execution_context.infeed(0, np.arange(SIZE, dtype=np.float32) + number)


def read():
    for number in range(ROUNDS):
        print(f"round {number}: {execution_context.outfeed(0)}")


threads = [threading.Thread(target=feed), threading.Thread(target=read)]
for thread in threads:
    thread.start()
run(10.0)
for thread in threads:
    thread.join()
