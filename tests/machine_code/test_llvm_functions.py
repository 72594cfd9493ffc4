"""The table of LLVM's functions agrees with llvmlite's declarations; other versions of llvmlite are compared first."""

import ctypes

import pytest

from xlakit.errors import UnsupportedError
from xlakit.machine_code import llvm


@pytest.fixture
def another_version(monkeypatch):
    monkeypatch.setattr(llvm, "_KNOWN_VERSION", "0.0.1")
    llvm.functions.cache_clear()
    yield
    llvm.functions.cache_clear()


def test_the_table_is_what_llvmlite_declares():
    llvm.check_declarations()


def test_another_version_with_the_same_functions_is_used(another_version):
    assert llvm.text_of(llvm.functions().GetDefaultTargetTriple)


@pytest.mark.parametrize(
    ("name", "declared"),
    [
        ("GetBufferSize", (ctypes.c_int, ctypes.c_void_p)),
        ("ParseAssembly", (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)),
        ("PTOSetLoopUnrolling", (None, ctypes.c_void_p, ctypes.c_int)),
        ("OfLater", (ctypes.c_void_p,)),
    ],
)
def test_functions_that_have_changed_are_refused_before_a_call(another_version, monkeypatch, name, declared):
    monkeypatch.setitem(llvm._FUNCTIONS, name, declared)
    with pytest.raises(UnsupportedError, match=f"function LLVMPY_{name} is another one") as caught:
        llvm.functions()
    assert "pip install llvmlite==0.0.1" in caught.value.hint
