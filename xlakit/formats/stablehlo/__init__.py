"""StableHLO to HLO and back: MLIR text, bytecode and portable artifacts.

MLIR's parser and StableHLO's conversion to HLO live in jaxlib: ``pip install 'xlakit[jax]'``. Portable artifacts of
most programs are read without it (``modules.py``), which also takes a fraction of the time.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from xlakit.data.primitive import PrimitiveType
from xlakit.errors import FormatError, Location, UnsupportedError
from xlakit.formats.stablehlo.bytecode import MAGIC
from xlakit.ir.instruction import HloModule

BYTECODE_MAGIC = MAGIC

# What the name of their producer begins with in portable artifacts.
_PRODUCER = b"StableHLO_v"
# The field source_file of OpMetadata, and a string of length one.
_NO_NAME = b"\x1a\x01-"

_ERROR = r"(?P<file>[^\s:]+):(?P<line>\d+):(?P<column>\d+): error: (?P<fault>.*)"
_FATAL_CONVOLUTION = r"\[[^\]\n]*\]x\[[^\]\n]*\]->\[[^\]\n]*\]"
# Functions without a body, up to what follows them.
_DECLARED = r"(?m)^[ \t]*func\.func (?:\w+ )?(@[\w.$-]+)\([^{}\n]*$(?=\s*(?://[^\n]*\s*)*(?:func\.func|\}|\Z))"
_RAW_CONVOLUTION = r"\bconv<raw\b([^>]*)>"
_FATAL_CONSTANT = r"\bstablehlo\.constant\b[^:]*:\s*tensor<[\dx]*(f6E2M3FN|f6E3M2FN)\b"
_FATAL_TYPES = frozenset({PrimitiveType.F6E2M3FN, PrimitiveType.F6E3M2FN, PrimitiveType.S1, PrimitiveType.U1})
_COUNT = r"\bmhlo\.num_(replicas|partitions)\s*=\s*(\d+)"


def read_stablehlo(
    program: str | bytes, *, name: str = "<stablehlo>", use_tuple_args: bool = False, return_tuple: bool = False
) -> HloModule:
    """The HLO of a StableHLO module: MLIR text, MLIR bytecode, or a portable artifact as ``jax.export`` makes it.

    ``name`` stands for the file in errors. ``use_tuple_args`` makes one tuple of all parameters, ``return_tuple`` one
    of all results.

    Raises FormatError with the line where MLIR finds a fault, and
    UnsupportedError where jaxlib is not installed, or cannot read the program.
    """
    try:
        mlir = _mlir()
    except UnsupportedError:
        hlo = None if use_tuple_args or return_tuple else _without_jaxlib(program)
        if hlo is None:
            raise
        return hlo
    if isinstance(program, bytes) and not program.startswith(BYTECODE_MAGIC):
        try:
            program = program.decode()
        except UnicodeDecodeError as error:
            raise FormatError(
                f"neither MLIR text nor MLIR bytecode: {error}",
                location=Location(name, 1),
                hint="write it with mlir's bytecode writer, or as text",
            ) from None
    try:
        text = program if isinstance(program, str) else _bytecode_text(program)
    except ValueError as error:
        raise FormatError(
            f"not StableHLO bytecode: {error}",
            location=Location(name, 1),
            hint="write it with stablehlo.serialize_portable_artifact, or as text",
        ) from None
    _check_constants(text, name)
    _check_convolutions(text, name)
    _check_calls(text, name)
    try:
        computation = mlir.mlir_module_to_xla_computation(
            program, use_tuple_args=use_tuple_args, return_tuple=return_tuple
        )
    except (RuntimeError, ValueError) as error:
        raise _as_format_error(error, name) from None
    from xlakit.formats.hlo_proto import read_module

    counts = _counts(text)
    module = read_module(_with_name(computation.as_serialized_hlo_module_proto(), name))
    return module.replace(
        replica_count=counts.get("replicas", module.replica_count),
        num_partitions=counts.get("partitions", module.num_partitions),
    )


def check_jaxlib() -> None:
    """Raise UnsupportedError where jaxlib, which has MLIR, is not installed."""
    _mlir()


def _without_jaxlib(program: str | bytes) -> HloModule | None:
    """The module of a portable artifact; None for other formats, and if the program has something unsupported."""
    if not isinstance(program, bytes) or not program.startswith(BYTECODE_MAGIC):
        return None
    from xlakit.formats.stablehlo.modules import try_to_read

    return try_to_read(program)


def stablehlo_text(module: HloModule) -> str:
    """The text of a module in StableHLO. Raises UnsupportedError where jaxlib, or StableHLO, lacks something."""
    mlir = _mlir()
    import jaxlib._hlo as hlo

    _check_elements(module)
    with _unconverted(module):
        return mlir.xla_computation_to_mlir_module(hlo.XlaComputation(module.to_proto()))


def stablehlo_bytecode(module: HloModule) -> bytes:
    """The bytecode of a module in StableHLO. Raises what :func:`stablehlo_text` raises."""
    mlir = _mlir()
    _check_elements(module)
    with _unconverted(module):
        return mlir.hlo_to_stablehlo(module.to_proto())


@contextmanager
def _unconverted(module: HloModule) -> Generator[None]:
    try:
        yield
    except (RuntimeError, ValueError) as error:
        first = str(error).strip().split("\n")[0]
        raise UnsupportedError(
            f"jaxlib does not convert module '{module.name}' to StableHLO: {first}",
            hint="keep the program as HLO text or as a proto",
        ) from None


def _check_elements(module: HloModule) -> None:
    """Raise UnsupportedError for element types on which jaxlib does not fail, but ends the process."""
    shapes = (i.shape for i in module.instructions)
    kinds = {leaf.element_type for shape in shapes for _, leaf in shape.leaves()}
    unknown = sorted(kind.name for kind in kinds & _FATAL_TYPES)
    if unknown:
        raise UnsupportedError(
            f"jaxlib has no StableHLO type for {', '.join(unknown)}",
            hint="keep the program as HLO text or as a proto",
        )


def artifact_text(program: bytes) -> str:
    """The text of bytecode or of a portable artifact. Raises UnsupportedError, FormatError."""
    _mlir()
    try:
        return _bytecode_module(program).operation.get_asm()
    except ValueError as error:
        raise FormatError(
            f"not StableHLO bytecode: {error}", hint="write it with stablehlo.serialize_portable_artifact"
        ) from None


def portable_artifact(program: str | bytes, version: str = "") -> bytes:
    """A portable artifact of a StableHLO module, for readers of a version of StableHLO; by default the current one.

    Raises UnsupportedError, FormatError.
    """
    _mlir()
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    try:
        module: Any = ir.Module.parse(program, _context())
        return stablehlo.serialize_portable_artifact(module, version or stablehlo.get_current_version())
    except (ValueError, ir.MLIRError) as error:
        raise FormatError(f"no portable artifact: {error}", hint="give a module in the StableHLO dialect") from None


def refine_shapes(program: str | bytes, **options: bool) -> bytes:
    """A module whose unknown dimensions are known from its arguments; ``options`` are those of jaxlib's function.

    Raises UnsupportedError, FormatError.
    """
    mlir = _mlir()
    try:
        return mlir.refine_polymorphic_shapes(program, **options)
    except (RuntimeError, ValueError) as error:
        raise _as_format_error(error, "<stablehlo>") from None


def _mlir() -> Any:
    try:
        import jaxlib._jax as extension

        return extension.mlir
    except (ImportError, AttributeError):
        raise UnsupportedError(
            "reading StableHLO needs jaxlib, which is not installed, or is one of another version",
            hint="pip install 'xlakit[jax]'",
        ) from None


def _as_format_error(error: Exception, name: str) -> FormatError:
    """The first fault that MLIR reports, with its line; the rest of its report repeats the program."""
    match = re.search(_ERROR, str(error))
    if match is None:
        first = str(error).strip().split("\n")[0]
        return FormatError(
            f"jaxlib does not read it: {first}",
            location=Location(name, 1),
            hint="check it with stablehlo-opt, or give HLO text",
        )
    file, line, column, fault = match.groups()
    # MLIR counts in the file itself, or in the person's source where the program has locations.
    source = name if file in ("-", "<unknown>") else file
    location = Location(source, int(line), int(column)) if int(line) else Location(name, 1)
    if "can't be translated to XLA HLO" not in fault:
        hint = "check it with stablehlo-opt; only the StableHLO and CHLO dialects are read"
        if "module with `main` function" in fault:
            hint = "call the function that is to run @main, and make it public"
        elif "redefinition of symbol" in fault:
            hint = "give one program: write each part between lines '// -----' into a file of its own"
        return FormatError(f"not StableHLO: {fault}", location=location, hint=hint)
    hint = "HLO has no unknown sizes; export the program for fixed shapes" if "dynamic" in fault else ""
    return FormatError(f"StableHLO that HLO lacks: {fault}", location=location, hint=hint)


def _check_constants(text: str, name: str) -> None:
    """Raise UnsupportedError for constants on which jaxlib does not fail, but ends the process."""
    match = re.search(_FATAL_CONSTANT, text)
    if match is not None:
        line = text.count("\n", 0, match.start()) + 1
        raise UnsupportedError(
            f"jaxlib cannot read constants of {match[1].lower()}, a 6-bit float",
            location=Location(name, line),
            hint="convert the constant from f32 in the program",
        )


def _check_convolutions(text: str, name: str) -> None:
    """Raise FormatError for convolutions with dimensions of no kind: jaxlib ends the process when it prints them."""
    for match in re.finditer(_FATAL_CONVOLUTION, text) if "?" in text else ():
        if "?" in match[0]:
            raise FormatError(
                f"a convolution has a dimension that is none of batch, feature and window: {match[0]}",
                location=Location(name, text.count("\n", 0, match.start()) + 1),
                hint="HLO has no such dimensions: write b, f, i, o or a number for each '?'",
            )
    for match in re.finditer(_RAW_CONVOLUTION, text):
        for side in ("input", "kernel", "output"):
            fields = re.findall(rf"\b{side}_\w+ = (\[[^\]]*\]|\d+)", match[1])
            numbers = [int(number) for field in fields for number in re.findall(r"\d+", field)]
            if sorted(numbers) != list(range(len(numbers))):
                raise FormatError(
                    f"a convolution whose {side} has the dimensions {numbers}",
                    location=Location(name, text.count("\n", 0, match.start()) + 1),
                    hint=f"name each dimension of the {side} once, from 0 on",
                )


def _check_calls(text: str, name: str) -> None:
    """Raise FormatError for calls of functions without a body: jaxlib ends the process when it inlines them."""
    for match in re.finditer(_DECLARED, text):
        if re.search(rf"\bcall {re.escape(match[1])}\(", text):
            raise FormatError(
                f"the function {match[1]} is called and has no body",
                location=Location(name, text.count("\n", 0, match.start(1)) + 1),
                hint="write its body, or call it as stablehlo.custom_call",
            )


def _with_name(data: bytes, name: str) -> bytes:
    """A HloModuleProto with the source file ``-``, MLIR's name for standard input, replaced by ``name``."""
    if _NO_NAME not in data:
        return data
    from xlakit.formats.hlo_proto import schema

    proto = schema.parse("HloModuleProto", data)
    for computation in proto.computations:
        for instruction in computation.instructions:
            if instruction.metadata.source_file == "-":
                instruction.metadata.source_file = name
    return proto.SerializeToString()


def _counts(text: str) -> dict[str, int]:
    """The counts among the module's attributes, which stand before its body; the HLO proto has no field for them."""
    head = text[: text.find("func.func") + 1 or None]
    return {kind: int(count) for kind, count in re.findall(_COUNT, head)}


def main_attributes(program: bytes, name: str) -> tuple[list[str], list[str]]:
    """A text attribute of the arguments and of the results of a bytecode module's main function.

    HLO protos lack some of them, such as ``mhlo.memory_kind``. Empty where an argument or result has none.
    """
    operation = _bytecode_module(program).operation
    (main,) = (o for o in operation.regions[0].blocks[0].operations if o.attributes["sym_name"].value == "main")
    function: Any = main.type
    return (
        _texts(main.attributes, "arg_attrs", len(function.inputs), name),
        _texts(main.attributes, "res_attrs", len(function.results), name),
    )


def _texts(attributes: Any, of: str, count: int, name: str) -> list[str]:
    dictionaries = list(attributes[of]) if of in attributes else [{}] * count
    return [each[name].value if name in each else "" for each in dictionaries]


def _bytecode_text(program: bytes) -> str:
    """Bytecode as text, without the elements of large constants."""
    return _bytecode_module(program).operation.get_asm(large_elements_limit=16)


def _bytecode_module(program: bytes) -> Any:
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    # What wrote the bytecode stands in MLIR's reports of faults, which end the process where they are not UTF-8.
    producer = program[len(BYTECODE_MAGIC) :].partition(b"\0")[0]
    if not producer[1:].isascii():
        raise ValueError("the name of what wrote it is damaged")
    context = _context()
    # MLIR would print errors for data that is no portable artifact; the parser's error is enough.
    with context.attach_diagnostic_handler(lambda fault: True):
        try:
            # Artifacts are in a dialect of their own, which the parser would leave as it is.
            return stablehlo.deserialize_portable_artifact(context, program)
        except ValueError as fault:
            if producer[1:].startswith(_PRODUCER):
                raise  # the parser below could do no more than report the fault
            try:
                return ir.Module.parse(program, context)
            except ir.MLIRError:
                raise fault from None


def _context() -> Any:
    """An MLIR context with the dialects that JAX's programs are made of."""
    from jaxlib.mlir import ir
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext
    from jaxlib.mlir.dialects import chlo, sdy, stablehlo

    context: Any = ir.Context()
    registry: Any = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    for dialect in (stablehlo, chlo, sdy):
        dialect.register_dialect(context)
    return context
