"""Instructions may have any name: functions of machine code are called otherwise."""

import re

import numpy as np
import pytest

import xlakit as xla
from xlakit.cpu.kernels import library
from xlakit.cpu.llvm import I64, PTR, VOID, Module
from xlakit.errors import InternalError
from xlakit.formats.hlo_text.parser import parse_module


@pytest.mark.parametrize("name", ["xlakit_entry", "memcpy", "xlakit_parallel", "fmodf"])
def test_names_that_machine_code_knows(name):
    text = f"""HloModule m
    ENTRY e {{
      p = f32[9000] parameter(0)
      q = f32[9000] parameter(1)
      {name} = f32[9000] multiply(p, q)
      r = f32[9000] remainder(p, q)
      ROOT t = (f32[9000], f32[9000], f32[9000]) tuple({name}, r, p)
    }}"""
    program = xla.compile(parse_module(text))
    defined = re.findall(r"^define [^@]*@(\S+?)\(", program.llvm_ir(), re.MULTILINE)
    assert [d for d in defined if not d.startswith(("hlo.", "math."))] == ["xlakit_entry"]
    p, q = np.arange(9000, dtype=np.float32), np.arange(9000, 0, -1, dtype=np.float32)
    product, rest, same = program(p, q)
    np.testing.assert_array_equal(product, p * q)
    np.testing.assert_array_equal(rest, np.fmod(p, q))
    np.testing.assert_array_equal(same, p)


def test_names_of_any_characters():
    """Protos may have names that HLO text could not."""
    root = parse_module("HloModule m\nENTRY e { ROOT r = f32[] parameter(0) }").entry.root
    assert library._symbol(root.replace(name="grün/a²")) == "hlo.gr_n_a_"


def test_one_name_has_one_meaning():
    module = Module("m")
    module.function("memcpy", VOID, [PTR, I64])
    with pytest.raises(InternalError, match="memcpy"):
        module.declare("memcpy", PTR, [PTR, PTR, I64])
