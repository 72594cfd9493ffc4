"""Arrays that a program is called with: which go straight to native code."""

import pickle

import numpy as np

import xlakit as xla


def test_pickled_arrays_go_to_native_code(monkeypatch):
    """Their dtypes are other objects, which native code does not compare."""
    module = xla.HloModule.from_text("""HloModule double
    ENTRY e {
      x = f32[2,3] parameter(0)
      ROOT y = f32[2,3] add(x, x)
    }""")
    made = xla.compile(module, backend="cpu", cache=False)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    pickled = pickle.loads(pickle.dumps(x))
    assert pickled.dtype is not x.dtype
    slow = []
    monkeypatch.setattr(type(made), "_slow_call", lambda _, *arguments: slow.append(arguments))
    np.testing.assert_array_equal(made(pickled), x + x)
    made(pickled.astype(">f4"))
    made(pickled, pickled)
    assert [len(arguments) for arguments in slow] == [1, 2]
