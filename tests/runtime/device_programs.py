"""Programs for the tests of the runtime, and one that runs until it is let go."""

import threading

import numpy as np

import xlakit as xla

F4 = "f32[4]"


def module(body, header="", extra="", name="m"):
    """A module whose entry computation has these lines."""
    return xla.HloModule.from_text(f"HloModule {name}{header}\n{extra}\nENTRY main {{\n{body}\n}}\n")


def add(name="add", header=""):
    """The sum of two vectors of four."""
    body = "  a = f32[4] parameter(0)\n  b = f32[4] parameter(1)\n  ROOT r = f32[4] add(a, b)"
    return module(body, header, name=name)


SUM = """sum {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT s = f32[] add(p, q)
}"""


def all_reduced(name="reduced"):
    """The sum of vectors of all replicas."""
    body = "  a = f32[4] parameter(0)\n  ROOT r = f32[4] all-reduce(a), replica_groups={}, to_apply=sum"
    return module(body, extra=SUM, name=name)


def endless():
    """A loop that nothing but closing the client ends."""
    return module(
        "  a = f32[4] parameter(0)\n  ROOT r = f32[4] while(a), condition=always, body=step",
        extra="always {\n  x = f32[4] parameter(0)\n  n = f32[] constant(0)\n  s = f32[] reduce(x, n), dimensions={0}, "
        "to_apply=sum\n  ROOT c = pred[] compare(s, n), direction=GE\n}\nstep {\n  y = f32[4] parameter(0)\n"
        "  ROOT z = f32[4] abs(y)\n}\nsum {\n  p = f32[] parameter(0)\n  q = f32[] parameter(1)\n"
        "  ROOT t = f32[] add(p, q)\n}",
    )


def floats(*values):
    return np.array(values, np.float32)


class Held:
    """A program that gives what it is given, after it has begun and a caller has released it."""

    def __init__(self, client, device=0, error=None):
        self.has_begun = threading.Event()
        self.may_end = threading.Event()
        self._error = error
        body = '  a = f32[4] parameter(0)\n  ROOT r = f32[4] custom-call(a), custom_call_target="hold"'
        self.executable = client.compile(
            module(body, name="held"), custom_calls={"hold": self._hold}, device_assignment=[[device]]
        )

    def _hold(self, a):
        self.has_begun.set()
        assert self.may_end.wait(20)
        if self._error is not None:
            raise self._error
        return a

    def start(self, buffer, **options):
        result = self.executable.execute([buffer], **options)
        assert self.has_begun.wait(20)
        return result

    def end(self):
        self.may_end.set()
