"""Errors, and the table's entries for functions that are not supported."""

from __future__ import annotations

from collections.abc import Iterable

from xlakit.cpu.llvm import I8, I64, PTR, VOID, Function, Module, Value
from xlakit.jax.api.arguments import NativeStruct, slot_function
from xlakit.jax.api.numbers import Code
from xlakit.jax.native.records import ERROR


def emit_errors(module: Module) -> None:
    """``make_error(i64 code, ptr text, i64 size) -> ptr``, and the functions about errors."""
    fn, code, text, size = module.begin("make_error", PTR, [I64, PTR, I64], external=True)
    error = fn.call("xlakit_allocate", PTR, size + ERROR.size)
    ERROR.store(fn, error, "code", code)
    ERROR.store(fn, error, "message_size", size)
    fn.copy(fn.at(error, I8, ERROR.size), text, size)
    fn.ret(error)

    fn = module.function("Error_Destroy", VOID, [PTR], external=True)
    fn.call("xlakit_release", VOID, NativeStruct(fn, "Error_Destroy", fn.parameters[0]).pointer("error"))

    fn = module.function("Error_Message", VOID, [PTR], external=True)
    given = NativeStruct(fn, "Error_Message", fn.parameters[0])
    error = given.pointer("error")
    fn.store(fn.at(error, I8, ERROR.size), given.at("message"))
    given.store("message_size", ERROR.load(fn, error, "message_size"))

    fn, given = slot_function(module, "Error_GetCode")
    error = given.pointer("error")
    given.store("code", ERROR.load(fn, error, "code"))


def emit_unsupported(module: Module, slots: Iterable[str]) -> None:
    """Emit, for each of these functions, one that returns an error that it is not supported."""
    for slot in slots:
        fn = module.function(slot, PTR, [PTR], external=True)
        fn.ret(error(fn, Code.UNIMPLEMENTED, f"xlakit does not support PJRT_{slot}"))


def error(fn: Function, code: Code, text: str) -> Value:
    """A new error with a constant text."""
    data = text.encode()
    name = fn.module.constant_data("text", data, align=1)
    return fn.call("make_error", PTR, fn.i64(code), fn.address(name), fn.i64(len(data)))


def fail_if(fn: Function, condition: Value, code: Code, text: str) -> None:
    """Emit a return of an error for the case that the condition holds."""
    with fn.if_(condition, likely=False):
        fn.ret(error(fn, code, text))
