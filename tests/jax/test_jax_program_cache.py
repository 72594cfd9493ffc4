"""Programs that the compile cache finds by what JAX hands over."""

import os
import tempfile
import warnings
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
import pytest


@contextmanager
def empty_cache():
    """A cache of its own, and a list that grows with each program that is not found by JAX's bytes."""
    from xlakit.cpu import compiler
    from xlakit.cpu.cache import cache_key
    from xlakit.jax import compiling, program_cache

    read, compiled = compiling._compiled, []

    def compile_now(*arguments):
        compiled.append(arguments)
        return read(*arguments)

    with ExitStack() as patches:
        folder = patches.enter_context(tempfile.TemporaryDirectory())
        patches.enter_context(mock.patch.dict(os.environ, XLAKIT_CACHE_DIR=folder))
        patches.enter_context(mock.patch.object(compiling, "_compiled", compile_now))
        # The compiler's sources may be edited while its tests run.
        for module in (cache_key, compiler, program_cache):
            patches.enter_context(mock.patch.object(module, "compiler_has_changed", lambda: False))
        cache_key._of_compiler.cache_clear()
        os.environ.pop("XLAKIT_CACHE", None)
        yield Path(folder), compiled


def program():
    import jax
    import jax.numpy as jnp

    # So large that machine code takes it from the program, which is read for that.
    table = np.arange(300_000, dtype=np.float32)
    return jax.jit(lambda x, y: (jnp.sin(x) + table, x * y), donate_argnums=0)


def arguments(device=0):
    import jax

    values = np.full((2, 300_000), 0.5, np.float32), np.float32(3)
    return jax.device_put(values, jax.devices()[device])


def check_found_again():
    import jax

    with empty_cache() as (folder, compiled):
        results = []
        # JAX's bytes tell the lines of all callers; so this is one line.
        for device, count in ((0, 1), (0, 1), (1, 2), (1, 2)):
            jax.clear_caches()
            x, y = arguments(device)
            results.append(program()(x, y))
            assert (len(compiled), len(list(folder.glob("source-*")))) == (count, count)
            assert results[-1][0].devices() == {jax.devices()[device]}
            assert x.is_deleted()
        assert len(list(folder.glob("program-*"))) == 1
        for others in results[1:]:
            for value, expected in zip(others, results[0], strict=True):
                np.testing.assert_array_equal(np.asarray(value), np.asarray(expected))


def check_what_jax_asks():
    import jax
    from jax.experimental import serialize_executable

    with empty_cache() as (_, compiled):
        told = []
        for _ in range(2):
            jax.clear_caches()
            x, y = arguments()
            lowered = program().lower(x, y)
            found = lowered.compile()
            text, module = found.as_text(), found.runtime_executable().hlo_modules()[0].to_string()
            memory = found.memory_analysis()
            told.append(
                (
                    text, module, found.cost_analysis(), memory.argument_size_in_bytes, memory.temp_size_in_bytes,
                    str(found.input_shardings), str(found.output_formats), found.out_tree,
                )
            )  # fmt: skip
            assert "fusion" in text and "sine" in module
            data, *trees = serialize_executable.serialize(found)
            loaded = serialize_executable.deserialize_and_load(data, *trees, execution_devices=jax.devices()[:1])
            np.testing.assert_array_equal(np.asarray(loaded(*arguments())[1]), np.asarray(x) * 3)
        assert told[0] == told[1]
        # The second was found; what is serialized is described, and has an entry of its own.
        assert [format for _, _, format, *_ in compiled] == ["mlir", "hlo_with_config"]


def check_damage():
    import jax

    def damage(path):
        data = bytearray(path.read_bytes())
        data[-100] ^= 1
        path.write_bytes(data)

    with empty_cache() as (folder, compiled):
        results = []
        # One is of no use without the other.
        for kind, change in ((None, damage), ("source", damage), ("program", damage), ("program", Path.unlink)):
            jax.clear_caches()
            for path in folder.glob(f"{kind}-*"):
                change(path)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                results.append(np.asarray(program()(*arguments())[0]))
            assert any("damaged" in str(w.message) for w in said) == (kind is not None and change is damage)
            assert len(compiled) == len(results)
            np.testing.assert_array_equal(results[-1], results[0])


def check_what_is_not_found():
    import jax

    with empty_cache() as (folder, compiled):
        called = jax.jit(lambda x: jax.pure_callback(np.sin, x, x))
        for _ in range(2):
            jax.clear_caches()
            called(arguments()[1])
        assert len(compiled) == 2
        assert not list(folder.glob("source-*"))
        for variables, count in (
            ({}, 3),
            ({"XLAKIT_DISABLE_PASSES": "fusion"}, 4),
            ({}, 4),
            ({"XLAKIT_CACHE": "off"}, 5),
        ):
            jax.clear_caches()
            with mock.patch.dict(os.environ, variables):
                program()(*arguments())
            assert len(compiled) == count


def check_calls_of_lapack():
    import jax

    # Machine code makes them, and is linked with the library of the process that finds it.
    matrix = np.array([[1, 4, 2], [3, 1, 5], [2, 2, 7]], np.float32)
    with empty_cache() as (folder, compiled):
        factored = jax.jit(jax.scipy.linalg.lu)
        results = []
        for _ in range(2):
            jax.clear_caches()
            results.append([np.asarray(v) for v in factored(matrix)])
        assert len(compiled) == 1
        assert len(list(folder.glob("source-*"))) == 1
        for first, second in zip(*results, strict=True):
            np.testing.assert_array_equal(first, second)
        permutation, lower, upper = results[1]
        np.testing.assert_allclose(permutation @ lower @ upper, matrix, rtol=1e-5)


def check_custom_calls():
    import jax

    from xlakit.execution.calls import custom_calls

    def hinted(x):
        # The compiler knows this target, until a function is registered for it.
        return jax.ffi.ffi_call("MoveToDevice", x)(x) + 1

    x = np.arange(8, dtype=np.float32)
    with empty_cache() as (_, compiled):
        for registered, count in (({}, 1), ({}, 1), ({"MoveToDevice": None}, 2), ({}, 2)):
            jax.clear_caches()
            with mock.patch.object(custom_calls, "is_registered", registered.__contains__):
                np.testing.assert_array_equal(jax.jit(hinted)(x), x + 1)
            found = [given for given in compiled if b"hinted" in given[1]]
            assert len(found) == count


def test_on_xlakit(check, on_xlakit):
    on_xlakit(check)


def test_keys_tell_sources_apart():
    jaxlib = pytest.importorskip("jaxlib")
    from xlakit.jax.program_cache import key_of

    with mock.patch("xlakit.cpu.cache.cache_key._of_compiler", lambda: b"compiler"):
        keys = [key_of(*given) for given in ((b"ab", "mlir", b"c"), (b"a", "mlir", b"bc"), (b"ab", "hlo", b"c"))]
        with mock.patch.object(jaxlib.version, "__version__", "another"):
            keys.append(key_of(b"ab", "mlir", b"c"))
    with mock.patch("xlakit.cpu.cache.cache_key._of_compiler", lambda: b"another"):
        keys.append(key_of(b"ab", "mlir", b"c"))
    assert len(set(keys)) == len(keys)
    assert None not in keys
    with mock.patch.dict(os.environ, XLAKIT_DEBUG="passes"):
        assert key_of(b"ab", "mlir", b"c") is None
