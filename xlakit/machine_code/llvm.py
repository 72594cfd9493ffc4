"""The functions of LLVM that a compilation calls, as llvmlite's library has them.

``llvmlite.binding`` declares ten times as many, with classes and a writer of LLVM IR, and takes three times as long to
import as the library takes to load: a tenth of what the first program of a process takes. It is left to what few
programs need, LLVM's linker.

These are called without the lock that llvmlite holds while it calls one: LLVM lets several threads work as long as they
share no context. Objects of LLVM are addresses; the caller that made an object disposes of it.
"""

from __future__ import annotations

import ctypes
import platform
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import llvmlite
from llvmlite.utils import get_library_name

from xlakit.errors import InternalError, UnsupportedError

# What sets up LLVM's global state (targets, the JIT) is done by one thread at a time.
lock = threading.Lock()

# The version of llvmlite with which the table below was compared. Others are compared when they are loaded.
_KNOWN_VERSION: Final = "0.50.0"
_PREFIX: Final = "LLVMPY_"
# What systems call processors of this instruction set.
_X86: Final = ("x86_64", "amd64")
_OBJECT, _TEXT, _INT, _BOOL, _SIZE = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_bool, ctypes.c_size_t
# Where a text is given.
_GIVEN: Final = ctypes.POINTER(ctypes.c_char_p)
# What each gives, and what it takes.
_FUNCTIONS: Final[dict[str, tuple[Any, ...]]] = {
    "DisposeString": (None, _TEXT),
    # This machine.
    "InitializeNativeTarget": (None,),
    "InitializeNativeAsmPrinter": (None,),
    "InitializeNativeAsmParser": (None,),
    "SetCommandLine": (None, _TEXT, _TEXT),
    "GetHostCPUName": (None, _GIVEN),
    "GetHostCPUFeatures": (_INT, _GIVEN),
    "GetDefaultTargetTriple": (None, _GIVEN),
    "GetTargetFromTriple": (_OBJECT, _TEXT, _GIVEN),
    # Of a target: the triple, the processor, its features, the level, the relocations, the code model, whether machine
    # instructions are printed, whether it is for a JIT, and the ABI.
    "CreateTargetMachine": (_OBJECT, _OBJECT, _TEXT, _TEXT, _TEXT, _INT, _TEXT, _TEXT, _INT, _INT, _TEXT),
    "DisposeTargetMachine": (None, _OBJECT),
    "CreateTargetMachineData": (_OBJECT, _OBJECT),
    "CopyStringRepOfTargetData": (None, _OBJECT, _GIVEN),
    "DisposeTargetData": (None, _OBJECT),
    # Modules.
    "ContextCreate": (_OBJECT,),
    "ContextDispose": (None, _OBJECT),
    "ParseAssembly": (_OBJECT, _OBJECT, _TEXT, _GIVEN),
    "DisposeModule": (None, _OBJECT),
    "SetTarget": (None, _OBJECT, _TEXT),
    "SetDataLayout": (None, _OBJECT, _TEXT),
    "PrintModuleToString": (None, _OBJECT, _GIVEN),
    "VerifyModule": (_BOOL, _OBJECT, _GIVEN),
    # Passes.
    "CreatePipelineTuningOptions": (_OBJECT,),
    "PTOSetLoopVectorization": (None, _OBJECT, _BOOL),
    "PTOSetSLPVectorization": (None, _OBJECT, _BOOL),
    "PTOSetLoopInterleaving": (None, _OBJECT, _BOOL),
    "PTOSetLoopUnrolling": (None, _OBJECT, _BOOL),
    "CreatePassBuilder": (_OBJECT, _OBJECT, _OBJECT),
    "DisposePassBuilder": (None, _OBJECT),
    "buildPerModuleDefaultPipeline": (_OBJECT, _OBJECT, _INT),
    "CreateNewModulePassManager": (_OBJECT,),
    "module_AddAlwaysInlinerPass": (None, _OBJECT),
    "module_AddSROAPass": (None, _OBJECT),
    "module_AddSimplifyCFGPass": (None, _OBJECT),
    "module_AddInstCombinePass": (None, _OBJECT),
    "RunNewModulePassManager": (None, _OBJECT, _OBJECT, _OBJECT),
    "DisposeNewModulePassManger": (None, _OBJECT),
    # Machine code.
    "TargetMachineEmitToMemory": (_OBJECT, _OBJECT, _OBJECT, _INT, _GIVEN),
    "GetBufferStart": (_OBJECT, _OBJECT),
    "GetBufferSize": (_SIZE, _OBJECT),
    "DisposeMemoryBuffer": (None, _OBJECT),
}


@cache
def functions() -> Any:
    """The functions, by their names in the library without the prefix that all have.

    Raises UnsupportedError for a version of llvmlite in which one of them is missing or takes other arguments.
    """
    if llvmlite.__version__ != _KNOWN_VERSION:
        check_declarations()
    library = ctypes.CDLL(_path())
    found = SimpleNamespace()
    for name, (result, *arguments) in _FUNCTIONS.items():
        function = getattr(library, _PREFIX + name)
        function.restype, function.argtypes = result, arguments
        setattr(found, name, function)
    return found


def check_declarations() -> None:
    """Compare the table with what ``llvmlite.binding`` declares of the same functions. Raises UnsupportedError.

    The interface in C is llvmlite's own and may change with any version, and a call with wrong arguments crashes.
    """
    # The functions are declared as the package is imported.
    from llvmlite.binding.ffi import lib

    for name, (result, *arguments) in _FUNCTIONS.items():
        declared = getattr(lib, _PREFIX + name, None)
        # llvmlite declares no arguments of a few functions, and for those without a result ctypes' own type of one.
        known = declared is not None and (
            (result is None or _kind(result) == _kind(declared.restype))
            and (declared.argtypes is None or [*map(_kind, arguments)] == [*map(_kind, declared.argtypes)])
        )
        if not known:
            raise UnsupportedError(
                f"llvmlite {llvmlite.__version__}, whose function {_PREFIX}{name} is another one",
                hint=f"install llvmlite {_KNOWN_VERSION}: pip install llvmlite=={_KNOWN_VERSION}",
            )


def _kind(declared: Any) -> str:
    """How a function takes or gives a value of a ctypes type: as an address, or as a number of some size."""
    if issubclass(declared, (ctypes.c_int, ctypes.c_bool, ctypes.c_size_t)):
        return f"number of {ctypes.sizeof(declared)} bytes"
    return "address"


def _path() -> str:
    path = Path(llvmlite.__path__[0], "binding", get_library_name())
    if path.is_file():
        return str(path)
    # It is packed, or somewhere else: llvmlite finds it, and keeps its path in a private attribute.
    from llvmlite.binding import ffi

    return ffi.lib._name  # pyright: ignore[reportPrivateUsage]


def text_of(give: Callable[..., object], *arguments: object) -> str:
    """The text that a function gives through its last argument; empty where it gives none."""
    given = ctypes.c_char_p()
    give(*arguments, ctypes.byref(given))
    return taken(given)


def taken(given: ctypes.c_char_p) -> str:
    """A text that LLVM has given, and which is given up; empty where there is none."""
    if given.value is None:
        return ""
    text = given.value.decode(errors="replace")
    functions().DisposeString(given)
    return text


@cache
def set_up() -> None:
    """Have LLVM know this machine's instruction set."""
    with lock:
        functions().InitializeNativeTarget()
        functions().InitializeNativeAsmPrinter()
        # For functions that are assembly.
        functions().InitializeNativeAsmParser()
        if llvmlite.__version__ == _KNOWN_VERSION and platform.machine().lower() in _X86:
            # Where an iteration of a loop waits for a conditional move, LLVM would branch instead: right where branches
            # are predicted, but those of a dynamic program on random letters are not. The option is the process's, and
            # LLVM ends a process whose option it does not know, as another version may not.
            functions().SetCommandLine(b"xlakit", b"-x86-cmov-converter=false")


@cache
def triple() -> str:
    """LLVM's name of this machine's architecture and system."""
    return text_of(functions().GetDefaultTargetTriple)


def machine_of(name: str, features: str, level: int) -> int:
    """LLVM's machine for a processor, for code that may be anywhere, once it is set up; ``level`` is of its passes."""
    llvm, own = functions(), triple().encode()
    fault = ctypes.c_char_p()
    kind = llvm.GetTargetFromTriple(own, ctypes.byref(fault))
    if not kind:
        raise InternalError(f"LLVM has no machine for {triple()}: {taken(fault)}")
    machine = llvm.CreateTargetMachine(
        kind, own, name.encode(), features.encode(), level, b"pic", b"small", False, False, b""
    )
    if not machine:
        raise InternalError(f"LLVM has no machine for {triple()}")
    return machine


def emitted(machine: int, module: int, *, is_object: bool = True) -> bytes:
    """The object file of a module of LLVM, or its assembly text."""
    llvm = functions()
    fault = ctypes.c_char_p()
    buffer = llvm.TargetMachineEmitToMemory(machine, module, is_object, ctypes.byref(fault))
    if not buffer:
        raise InternalError(f"LLVM made no machine code: {taken(fault)}")
    try:
        return ctypes.string_at(llvm.GetBufferStart(buffer), llvm.GetBufferSize(buffer))
    finally:
        llvm.DisposeMemoryBuffer(buffer)


def host() -> tuple[str, str]:
    """The name of this machine's processor, and its features with a sign before each, in the order of the alphabet."""
    set_up()
    features = text_of(functions().GetHostCPUFeatures).split(",")
    features = sorted(filter(None, features), key=lambda feature: feature[1:])
    return text_of(functions().GetHostCPUName), ",".join(features)


@contextmanager
def parsed(text: str) -> Generator[int]:
    """The module of an IR text, while it is used. Raises InternalError where the text is faulty."""
    llvm = functions()
    context, module = llvm.ContextCreate(), None
    try:
        fault = ctypes.c_char_p()
        module = llvm.ParseAssembly(context, text.encode(), ctypes.byref(fault))
        if message := taken(fault):
            raise InternalError(f"the compiler wrote faulty LLVM IR: {message}")
        yield module
    finally:
        # A module is freed before its context.
        if module is not None:
            llvm.DisposeModule(module)
        llvm.ContextDispose(context)
