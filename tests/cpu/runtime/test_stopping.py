"""Ctrl-C and the interrupt flag end a kernel that takes long, on any number of threads, and in a single task."""

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

# Seconds of work in one kernel, on a fast machine, too.
_CHAIN = "".join(f"  p{n} = f64[40000000] power(t{n - 1}, a)\n  t{n} = f64[40000000] tan(p{n})\n" for n in range(1, 20))
SLOW = f"""
HloModule slow

ENTRY main {{
  x = f64[] parameter(0)
  a = f64[40000000] broadcast(x), dimensions={{}}
  i = f64[40000000] iota(), iota_dimension=0
  t0 = f64[40000000] tan(i)
{_CHAIN}
  ROOT r = f64[40000000] erf(t19)
}}
"""
# What one task does from its beginning to its end.
_STEP = """
HloModule slow

step {
  a = f64[] parameter(0)
  b = f64[] parameter(1)
  c = f64[] power(a, b)
  d = f64[] tan(c)
  e = f64[] power(d, c)
  f = f64[] tan(e)
  ROOT r = f64[] add(f, a)
}

ENTRY main {
  x = f64[] parameter(0)
"""
FOLD = f"""{_STEP}
  i = f64[200000000] iota(), iota_dimension=0
  ROOT r = f64[] reduce(i, x), dimensions={{0}}, to_apply=step
}}
"""
COLUMNS = f"""{_STEP}
  i = f64[20000000,10] iota(), iota_dimension=0
  ROOT r = f64[10] reduce(i, x), dimensions={{0}}, to_apply=step
}}
"""
SCATTER = f"""{_STEP}
  i = s32[4000000,1] iota(), iota_dimension=0
  j = s32[] constant(15)
  k = s32[4000000,1] broadcast(j), dimensions={{}}
  l = s32[4000000,1] and(i, k)
  u = f64[4000000] iota(), iota_dimension=0
  v = f64[4000000,20] broadcast(u), dimensions={{0}}
  w = f64[20,20] broadcast(x), dimensions={{}}
  ROOT r = f64[20,20] scatter(w, l, v), update_window_dims={{1}}, inserted_window_dims={{0}},
    scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=step
}}
"""
PRODUCT = """
HloModule product

ENTRY main {
  x = f32[400,400] parameter(0)
  ROOT y = f32[400,400] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


@pytest.mark.parametrize(
    ("count", "slow"),
    [(1, SLOW), (2, SLOW), (2, FOLD), (2, COLUMNS), (2, SCATTER)],
    ids=[1, 2, "fold", "columns", "scatter"],
)
def test_control_c_in_one_kernel(count, slow):
    code = f"""
import numpy as np
import xlakit
run = xlakit.compile(xlakit.HloModule.from_text({slow!r}))
try:
    print("ready", flush=True)
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
    out, errors = child.communicate(timeout=30)
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
