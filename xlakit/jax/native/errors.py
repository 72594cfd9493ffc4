"""Errors, and the table's entries for functions that are not supported."""

from __future__ import annotations

from collections.abc import Iterable

from xlakit.cpu.llvm import I8, I64, PTR, VOID, Function, Module, Value
from xlakit.jax.api.arguments import arguments_of
from xlakit.jax.api.numbers import Code
from xlakit.jax.native.records import ERROR


def emit_errors(module: Module) -> None:
    """``make_error(i64 code, ptr text, i64 size) -> ptr``, and the functions about errors."""
    fn = module.function("make_error", PTR, [I64, PTR, I64], external=True)
    code, text, size = fn.parameters
    error = fn.call("xlakit_allocate", PTR, size + ERROR.size)
    ERROR.store(fn, error, "code", code)
    ERROR.store(fn, error, "message_size", size)
    fn.copy(fn.at(error, I8, ERROR.size), text, size)
    fn.ret(error)

    args = arguments_of("Error_Destroy")
    fn = module.function("Error_Destroy", VOID, [PTR], external=True)
    fn.call("xlakit_release", VOID, args.pointer(fn, fn.parameters[0], "error"))

    args = arguments_of("Error_Message")
    fn = module.function("Error_Message", VOID, [PTR], external=True)
    error = args.pointer(fn, fn.parameters[0], "error")
    fn.store(fn.at(error, I8, ERROR.size), args.at(fn, fn.parameters[0], "message"))
    args.store(fn, fn.parameters[0], "message_size", ERROR.load(fn, error, "message_size"))

    args = arguments_of("Error_GetCode")
    fn = module.function("Error_GetCode", PTR, [PTR], external=True)
    error = args.pointer(fn, fn.parameters[0], "error")
    args.store(fn, fn.parameters[0], "code", ERROR.load(fn, error, "code"))
    fn.ret(fn.null())


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
