"""The runtime as LLVM IR."""

from __future__ import annotations

import sys

from xlakit.cpu.llvm import I64, VOID, Module
from xlakit.cpu.runtime.devices.deadlocks import emit_deadlocks
from xlakit.cpu.runtime.devices.device_threads import emit_device_threads
from xlakit.cpu.runtime.devices.fibers import emit_fibers
from xlakit.cpu.runtime.devices.rendezvous import emit_rendezvous, emit_rendezvous_start
from xlakit.cpu.runtime.devices.replicas import emit_replicas
from xlakit.cpu.runtime.devices.shares import emit_shares
from xlakit.cpu.runtime.library_threads import emit_library_threads
from xlakit.cpu.runtime.memory import emit_memory, emit_memory_start
from xlakit.cpu.runtime.native_call import emit_native_call
from xlakit.cpu.runtime.native_context import emit_context
from xlakit.cpu.runtime.native_host import emit_host
from xlakit.cpu.runtime.numpy_api import api_symbols
from xlakit.cpu.runtime.pool import emit_pool, emit_pool_start
from xlakit.cpu.runtime.thread_state import emit_thread_key, emit_thread_limit, emit_thread_state


def runtime_text() -> str:
    """The runtime as LLVM IR: the same text for the same version of xlakit, Python, NumPy and system."""
    module = Module("runtime")
    emit_thread_state(module)
    emit_thread_limit(module)
    emit_pool(module)
    at_thread_exit = emit_memory(module, huge_pages=sys.platform == "linux")
    emit_library_threads(module)
    fn, threads, processors, limit = module.begin("xlakit_runtime_start", VOID, [I64, I64, I64], external=True)
    emit_thread_key(fn, at_thread_exit)
    emit_memory_start(fn, limit)
    emit_pool_start(fn, threads, processors)
    emit_rendezvous_start(fn, processors)
    fn.call("xlakit_device_threads_reset", VOID)
    fn.call("xlakit_library_reset", VOID)
    emit_context(module)
    emit_fibers(module)
    emit_host(module)
    emit_rendezvous(module)
    emit_deadlocks(module)
    emit_shares(module)
    emit_device_threads(module)
    emit_replicas(module)
    if api_symbols() is not None:
        emit_native_call(module)
    return module.text()
