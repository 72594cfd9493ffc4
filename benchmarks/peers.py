"""The peers that workloads are timed on: each prepares a workload, so that it can be called."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import ml_dtypes
import numpy as np

import xlakit
import xlakit.jax
from benchmarks.machine import threads
from benchmarks.program import Array, Program, Workload


@dataclass(frozen=True, slots=True)
class Prepared:
    """A workload, ready to run.

    run: one run to its end. fetch: the arrays of what ``run`` gave.
    compile_seconds, cached_seconds: what making it cost, and what it costs when it was made before.
    memory: bytes of arguments, results and temporaries.
    """

    run: Callable[[], Any]
    fetch: Callable[[Any], list[Array]]
    compile_seconds: float | None = None
    cached_seconds: float | None = None
    memory: int | None = None


class Peer(Protocol):
    """A library that workloads are timed on."""

    name: str

    def prepare(self, workload: Workload, program: Program) -> Prepared | None:
        """The workload ready to run; None where this peer has no form of it. Whatever it raises is told in the row."""
        ...


def make_peers(
    names: Sequence[str], backend: str, *, quick: bool = False
) -> tuple[XlaPeer, XlakitPeer, list[Peer], list[str]]:
    """XLA, xlakit, the other peers that were asked for and can be imported, and notes on those that cannot."""
    others: list[Peer] = []
    notes: list[str] = []
    if "jax" in names:
        # Also where the package's entry points are not installed; to be called before JAX makes its clients.
        xlakit.jax.initialize()
    xlakit_peer = XlakitPeer(backend)
    for name in names:
        if name == "jax":
            others.append(JaxPeer())
        elif name == "again":
            others.append(AgainPeer(xlakit_peer))
        elif name.startswith("torch") and importlib.util.find_spec("torch") is None:
            notes.append(f"{name} is left out: torch is not installed")
        elif name.startswith("torch"):
            others.append(TorchPeer(compiled=name == "torch-compile"))
        elif name == "numpy":
            others.append(NumpyPeer())
    return XlaPeer(once=quick), xlakit_peer, others, notes


def export(workload: Workload, program: Program) -> bytes:
    """The HloModuleProto that JAX makes of a workload."""
    traced = jax.jit(program.jax, keep_unused=True).trace(*program.arguments)
    # For a CPU, JAX calls LAPACK by name; other platforms get HLO's own operations.
    lowered = traced.lower(lowering_platforms=("tpu",)) if workload.portable else traced.lower()
    computation: Any = lowered.compiler_ir("hlo")
    return computation.as_serialized_hlo_module_proto()


_WARM_UP = Workload("warm_up", "", lambda rng: Program([np.ones(8)], jax=lambda x: x + 1), {}, {})


class XlakitPeer:
    """One backend of xlakit; with "none", the peers are timed alone.

    times_cache: whether each program is compiled with the compile cache, too.
    """

    name = "xlakit"

    def __init__(self, backend: str, *, times_cache: bool = True) -> None:
        self.backend = backend
        self.latest: Prepared | None = None
        self._has_cache = "cache" in inspect.signature(xlakit.compile).parameters
        self._times_cache = times_cache and self._has_cache
        with contextlib.suppress(Exception):  # what is wrong with the backend will stand in each row
            # Loads what the compiler needs, which no workload is to be charged with.
            self.prepare(_WARM_UP, _WARM_UP.program())

    def prepare(self, workload: Workload, program: Program) -> Prepared | None:
        """Compile the exported program, without the cache and then with it."""
        if self.backend == "none":
            return None
        proto = export(workload, program)
        executable, seconds = self._compile(proto, cache=False)
        cached = None
        if self._times_cache:
            self._compile(proto, cache=True)
            cached = self._compile(proto, cache=True)[1]
        self.latest = Prepared(
            run=lambda: executable(*program.arguments),
            fetch=_leaves,
            compile_seconds=seconds,
            cached_seconds=cached,
            memory=_memory(executable),
        )
        return self.latest

    def _compile(self, proto: bytes, *, cache: bool) -> tuple[Any, float]:
        module = xlakit.HloModule.from_proto(proto)  # anew, since a module may remember what was made of it
        options: dict[str, Any] = {"cache": cache} if self._has_cache else {}
        start = time.perf_counter()
        executable = xlakit.compile(module, backend=self.backend, **options)
        return executable, time.perf_counter() - start


class XlaPeer:
    """XLA as JAX runs it on this processor."""

    name = "xla"

    def __init__(self, *, once: bool = False) -> None:
        """``once``: compile once, for a run that is not timed; a call of what ``compile`` gives takes longer."""
        self._once = once
        jax.config.update("jax_enable_compilation_cache", False)
        jax.jit(lambda x: x + 1)(0.0)  # starts the client

    def prepare(self, workload: Workload, program: Program) -> Prepared:
        """Compile with JAX, nothing being remembered from before."""
        jax.clear_caches()
        function = jax.jit(program.jax, keep_unused=True)
        lowered = function.lower(*program.arguments)
        start = time.perf_counter()
        compiled = lowered.compile()
        seconds = time.perf_counter() - start
        arguments = [jax.device_put(argument) for argument in program.arguments]
        call = compiled if self._once else function
        return Prepared(
            run=lambda: _wait(call(*arguments)),
            fetch=_leaves,
            compile_seconds=seconds,
            memory=_memory(compiled),
        )


class JaxPeer:
    """JAX on xlakit: the platform ``xlakit``, beside JAX's own, in this process."""

    name = "jax"

    def prepare(self, workload: Workload, program: Program) -> Prepared:
        """The workload as JAX calls it: with arrays that lie on the device."""
        (device, *_) = jax.devices("xlakit")
        function = jax.jit(program.jax, keep_unused=True)
        arguments = [jax.device_put(argument, device) for argument in program.arguments]
        return Prepared(run=lambda: _wait(function(*arguments)), fetch=_leaves)


class AgainPeer:
    """The same executable of xlakit, timed a second time, which shows the noise of a machine's timings."""

    name = "again"

    def __init__(self, xlakit: XlakitPeer) -> None:
        self._xlakit = xlakit

    def prepare(self, workload: Workload, program: Program) -> Prepared | None:
        """The same executable."""
        made = self._xlakit.latest
        return made and Prepared(made.run, made.fetch)


class NumpyPeer:
    """NumPy, and SciPy where NumPy has nothing."""

    name = "numpy"

    def prepare(self, workload: Workload, program: Program) -> Prepared | None:
        """The workload's NumPy form on its arguments."""
        function = program.numpy
        return function and Prepared(run=lambda: function(*program.arguments), fetch=_leaves)


class TorchPeer:
    """PyTorch, as it is or compiled."""

    def __init__(self, *, compiled: bool) -> None:
        import torch

        self.name = "torch-compile" if compiled else "torch"
        self._compiled = compiled
        self._torch: Any = torch
        torch.set_num_threads(threads())

    def prepare(self, workload: Workload, program: Program) -> Prepared | None:
        """The workload's PyTorch form on tensors that share the arguments' memory."""
        function = program.torch
        if function is None or (self._compiled and not program.torch_compiles):
            return None
        torch = self._torch
        tensors: Sequence[Any] = [self._tensor(argument) for argument in program.arguments]
        if program.torch_arguments is not None:
            tensors = program.torch_arguments(torch, *tensors)
        tensors = [t.detach().requires_grad_(i in program.gradients) for i, t in enumerate(tensors)]

        def call(*arguments: Any) -> Any:
            return function(torch, *arguments)

        if not self._compiled:
            return Prepared(run=lambda: call(*tensors), fetch=self._fetch)
        torch.compiler.reset()
        made = torch.compile(call, dynamic=False)
        start = time.perf_counter()
        made(*tensors)
        return Prepared(run=lambda: made(*tensors), fetch=self._fetch, compile_seconds=time.perf_counter() - start)

    def _tensor(self, array: Array) -> Any:
        if array.dtype == ml_dtypes.bfloat16:
            return self._torch.from_numpy(array.view(np.int16)).view(self._torch.bfloat16)
        return self._torch.from_numpy(array)

    def _fetch(self, result: Any) -> list[Array]:
        tensors = result if isinstance(result, (tuple, list)) else [result]
        return [self._array(tensor.detach()) for tensor in tensors]

    def _array(self, tensor: Any) -> Array:
        if tensor.dtype == self._torch.bfloat16:
            return tensor.contiguous().view(self._torch.int16).numpy().view(ml_dtypes.bfloat16)
        return tensor.numpy()


def _wait(result: Any) -> Any:
    """A result of JAX when it is there; quicker than jax.block_until_ready, which counts for small ones."""
    for array in result if isinstance(result, (tuple, list)) else (result,):
        array.block_until_ready()
    return result


def _leaves(result: Any) -> list[Array]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(result)]


def _memory(executable: Any) -> int | None:
    """Bytes of arguments, results and temporaries, where an executable tells; memory shared by two counts once."""
    analyze = getattr(executable, "memory_analysis", None)
    analysis = analyze() if analyze is not None else None
    if analysis is None:
        return None
    parts = (getattr(analysis, f"{part}_size_in_bytes", 0) for part in ("argument", "output", "temp"))
    return sum(parts) - getattr(analysis, "alias_size_in_bytes", 0)
