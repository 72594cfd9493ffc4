"""Ctrl-C and the interrupt flag end a kernel that takes long, on any number of threads."""

import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from xlakit.api import compile as compile_program
from xlakit.cpu.threads import threads
from xlakit.errors import ExecutionError
from xlakit.ir.instruction import HloModule

# Minutes of work in one kernel.
SLOW = """
HloModule slow

ENTRY main {
  x = f64[] parameter(0)
  a = f64[20000000] broadcast(x), dimensions={}
  i = f64[20000000] iota(), iota_dimension=0
  b = f64[20000000] power(i, a)
  c = f64[20000000] tan(b)
  d = f64[20000000] power(c, a)
  e = f64[20000000] tan(d)
  f = f64[20000000] power(e, c)
  g = f64[20000000] tan(f)
  h = f64[20000000] power(g, e)
  ROOT r = f64[20000000] erf(h)
}
"""
PRODUCT = """
HloModule product

ENTRY main {
  x = f32[400,400] parameter(0)
  ROOT y = f32[400,400] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


@pytest.mark.parametrize("count", [1, 2])
def test_control_c_in_one_kernel(count):
    code = f"""
import numpy as np
import xlakit
run = xlakit.compile(xlakit.HloModule.from_text({SLOW!r}))
print("ready", flush=True)
try:
    with xlakit.threads({count}):
        run(np.float64(1.5))
except KeyboardInterrupt:
    print("interrupted", flush=True)
product = xlakit.compile(xlakit.HloModule.from_text({PRODUCT!r}))
assert (product(np.ones((400, 400), np.float32)) == 400).all()
"""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "ready\n"
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    out, errors = child.communicate(timeout=60)
    assert (out, errors, child.returncode) == ("interrupted\n", "", 0)


@pytest.mark.parametrize("count", [1, 2])
def test_the_interrupt_flag_in_one_kernel(count):
    slow = compile_program(HloModule.from_text(SLOW))
    product = compile_program(HloModule.from_text(PRODUCT))

    def stop():
        time.sleep(0.1)
        slow._context.interrupt = True

    threading.Thread(target=stop).start()
    with threads(count), pytest.raises(ExecutionError, match="interrupted"):
        slow(np.float64(1.5))
    # What another program does on this thread is none of that.
    assert (product(np.ones((400, 400), np.float32)) == 400).all()
