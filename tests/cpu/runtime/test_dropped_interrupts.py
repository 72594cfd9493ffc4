"""What a signal handler raises during a host call ends the program, wherever in Python the handler runs."""

import subprocess
import sys

import pytest

# One host call after the other, without end.
ENDLESS = """
HloModule endless, num_partitions={devices}

body {{
  s = (s32[], token[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  t = token[] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  u = token[] outfeed(j, t), outfeed_shape=s32[]
  ROOT r = (s32[], token[]) tuple(j, u)
}}

condition {{
  s = (s32[], token[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  m = s32[] constant(-1)
  ROOT r = pred[] compare(i, m), direction=GT
}}

ENTRY main {{
  z = s32[] constant(0)
  t = token[] after-all()
  a = (s32[], token[]) tuple(z, t)
  w = (s32[], token[]) while(a), condition=condition, body=body
  ROOT r = s32[] get-tuple-element(w), index=0
}}
"""
# The timer goes on, as Python itself drops what a handler raises in the callback of a weak reference.
INTERRUPT = """
import signal, sys
import xlakit

class Rung(BaseException):
    pass

def ring(*_):
    raise Rung

run = xlakit.compile(xlakit.HloModule.from_text({text!r}))
dropped = []
sys.unraisablehook = lambda event: dropped.append(getattr(event.object, "__module__", ""))
signal.signal(signal.SIGALRM, ring)
ended = 0
for number in range(60):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.003 + number * 0.0003, 0.5)
        run.execute_replicated([[]] * {devices})
    except Rung:
        ended += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    run.execution_context.clear()
print(ended, [name for name in dropped if name.startswith("xlakit")])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no interval timers")
@pytest.mark.parametrize("devices", [1, 2])
def test_interrupted_host_calls(devices):
    code = INTERRUPT.format(text=ENDLESS.format(devices=devices), devices=devices)
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert (child.stdout, child.stderr, child.returncode) == ("60 []\n", "", 0)
