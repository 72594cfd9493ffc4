"""Linear algebra that JAX and TensorFlow call for TPUs and GPUs, on both backends, against NumPy and SciPy."""

import struct

import numpy as np
import pytest
import scipy.linalg
from foreign_programs import drawn

import xlakit
from xlakit.errors import ShapeError, UnsupportedError

FFI = ", api_version=API_VERSION_TYPED_FFI"
LETTERS = {
    "float32": "f32",
    "float64": "f64",
    "complex64": "c64",
    "complex128": "c128",
    "int32": "s32",
    "uint32": "u32",
    "int64": "s64",
    "uint64": "u64",
}
SYMMETRIC = drawn((5, 5), "f64", 1) + drawn((5, 5), "f64", 1).T
SQUARE, TALL, WIDE = drawn((4, 4), "f64", 2), drawn((6, 4), "f64", 3), drawn((3, 5), "f64", 4)


def called(target, result, operands, config="", attributes=FFI):
    """What a call gives, as the machine code computes it; the interpreter must give the same."""
    shapes = [f"{LETTERS[str(x.dtype)]}[{','.join(map(str, x.shape))}]" for x in operands]
    lines = [f"  p{i} = {shape} parameter({i})" for i, shape in enumerate(shapes)]
    names = ", ".join(f"p{i}" for i in range(len(shapes)))
    call = f'{result} custom-call({names}), custom_call_target="{target}"{attributes}, backend_config="{config}"'
    module = xlakit.HloModule.from_text("\n".join(["HloModule m", "ENTRY e {", *lines, f"  ROOT c = {call}", "}"]))
    compiled, wanted = (xlakit.compile(module, backend=backend)(*operands) for backend in ("cpu", "interpreter"))
    found, wanted = (list(r) if isinstance(r, tuple) else [r] for r in (compiled, wanted))
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9)
    return [np.asarray(x) for x in found]


def reflections(packed, taus):
    """The product of reflections, of vectors below the diagonal of a matrix."""
    q = np.eye(len(packed))
    for number, tau in enumerate(taus):
        v = np.r_[np.zeros(number), 1, packed[number + 1 :, number]]
        q = q @ (np.eye(len(packed)) - tau * np.outer(v, v))
    return q


@pytest.mark.parametrize(
    ("first", "second", "attributes"),
    [
        ("Qr", "ProductOfElementaryHouseholderReflectors", ""),
        ("cusolver_geqrf_ffi", "hipsolver_orgqr_ffi", FFI),
    ],
)
def test_qr(first, second, attributes):
    packed, taus = called(first, "(f64[6,4], f64[4])", [TALL], attributes=attributes)
    np.testing.assert_allclose(reflections(packed, taus)[:, :4] @ np.triu(packed[:4]), TALL, atol=1e-12)
    (q,) = called(second, "f64[6,4]", [packed, taus], attributes=attributes)
    np.testing.assert_allclose(q, reflections(packed, taus)[:, :4], atol=1e-12)
    (product,) = called("cusolver_ormqr_ffi", "f64[6,4]", [packed, taus, TALL], "{left = true, transpose = true}")
    np.testing.assert_allclose(product[:4], np.triu(packed[:4]), atol=1e-12)


def test_qr_with_exchanged_columns():
    packed, columns, taus = called(
        "cuhybrid_geqp3", "(f64[6,4], s32[4], f64[4])", [TALL, np.zeros(4, np.int32)], '{magma = \\"auto\\"}'
    )
    np.testing.assert_allclose(reflections(packed, taus)[:, :4] @ np.triu(packed[:4]), TALL[:, columns - 1], atol=1e-12)


@pytest.mark.parametrize(
    ("target", "result", "config", "attributes"),
    [
        ("Eigh", "(f64[5,5], f64[5])", "{lower},1,100,1e-6", ""),
        ("cusolver_syevd_ffi", "(f64[5,5], f64[5], s32[])", "{{algorithm = 0 : ui8, lower = {lower}}}", FFI),
    ],
)
@pytest.mark.parametrize("lower", [True, False])
def test_eigenvectors_of_a_triangle(target, result, config, attributes, lower):
    triangle = (np.tril if lower else np.triu)(SYMMETRIC)
    word = str(lower).lower() if attributes else str(int(lower))
    vectors, values, *_ = called(target, result, [triangle], config.format(lower=word), attributes)
    np.testing.assert_allclose(SYMMETRIC @ vectors, vectors * values, atol=1e-12)
    assert (np.diff(values) >= 0).all()


def test_lu_counts_from_zero_on_tpus_and_from_one_on_gpus():
    factors, pivots, order = called("LuDecomposition", "(f64[4,4], s32[4], s32[4])", [SQUARE], attributes="")
    product = (np.tril(factors, -1) + np.eye(4)) @ np.triu(factors)
    np.testing.assert_allclose(product, SQUARE[order], atol=1e-12)
    same, from_one, info = called("hipsolver_getrf_ffi", "(f64[4,4], s32[4], s32[])", [SQUARE])
    np.testing.assert_array_equal(same, factors)
    np.testing.assert_array_equal(from_one, pivots + 1)
    assert info == 0
    (permutation,) = called("cu_lu_pivots_to_permutation", "s32[4]", [pivots])
    np.testing.assert_array_equal(permutation, order)


def test_cholesky_and_its_update():
    positive = SQUARE @ SQUARE.T + np.eye(4)
    factor, info = called("cusolver_potrf_ffi", "(f64[4,4], s32[])", [positive], "{lower = false}")
    assert info == 0
    upper, w = np.triu(factor), SQUARE[0]
    np.testing.assert_allclose(upper.T @ upper, positive, atol=1e-12)
    updated, _ = called("cu_cholesky_update_ffi", "(f64[4,4], f64[4])", [upper, w], "{}")
    np.testing.assert_allclose(updated, scipy.linalg.cholesky(positive + np.outer(w, w)), atol=1e-12)


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("target", ["gesvd", "gesdd", "gesvdj", "gesvdp"])
def test_singular_values(target, full):
    a = (WIDE + 1j * WIDE[::-1]).astype(np.complex64)
    width, height = (3, 5) if full else (3, 3)
    columns, transposed = target in ("gesvdj", "gesvdp"), target == "gesvd"
    second, third = f"c64[3,{width}]", f"c64[5,{height}]" if columns else f"c64[{height},5]"
    sides = [third, second] if transposed else [second, third]
    config = f"{{compute_uv = true, full_matrices = {str(full).lower()}, transposed = {str(transposed).lower()}}}"
    _, s, *found, info = called(
        f"cusolver_{target}_ffi", f"(c64[3,5], f32[3], {sides[0]}, {sides[1]}, s32[])", [a], config
    )
    u, v = reversed(found) if transposed else found
    vh = v.conj().T if columns else v
    np.testing.assert_allclose((u[:, :3] * s) @ vh[:3], a, atol=1e-5)
    assert info == 0


def test_singular_values_alone():
    for target, sides in (("gesvd", "f64[], f64[]"), ("gesvdj", "f64[3,3], f64[5,5]")):
        config = "{compute_uv = false, full_matrices = true, transposed = false}"
        _, s, *_ = called(f"hipsolver_{target}_ffi", f"(f64[3,5], f64[3], {sides}, s32[])", [WIDE], config)
        np.testing.assert_allclose(s, np.linalg.svd(WIDE, compute_uv=False), atol=1e-12)


def test_eigenvalues_of_any_matrix():
    config = "{left = false, right = true}"
    a, pairs = SQUARE.astype(np.float32), "f32[4], f32[4]"
    re, im, _, vectors, _ = called("cuhybrid_eig_real", f"({pairs}, c64[4,4], c64[4,4], s32[])", [a], config)
    np.testing.assert_allclose(a @ vectors, vectors * (re + 1j * im), atol=1e-4)
    assert im.any()
    _, values, _, packed, _ = called("cusolver_geev_ffi", "(f32[4,4], c64[4], f32[4,4], f32[4,4], s32[])", [a], config)
    first = np.flatnonzero(values.imag > 0)
    vector = packed[:, first] + 1j * packed[:, first + 1]
    np.testing.assert_allclose(a @ vector, vector * values[first], atol=1e-4)
    turned = (a * 1j).astype(np.complex64)
    with pytest.raises(ShapeError, match="result 1"):
        called("cuhybrid_eig_real", f"({pairs}, c64[4,4], c64[4,4], s32[])", [turned], config)
    values, _, vectors, _ = called("cuhybrid_eig_comp", "(c64[4], c64[4,4], c64[4,4], s32[])", [turned], config)
    np.testing.assert_allclose(turned @ vectors, vectors * values, atol=1e-4)


def test_tridiagonal_form_and_systems():
    form, diagonal, beside, _, info = called(
        "cusolver_sytrd_ffi", "(f64[5,5], f64[5], f64[4], f64[4], s32[])", [SYMMETRIC], "{lower = true}"
    )
    assert info == 0 and form.shape == (5, 5)
    tridiagonal = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
    np.testing.assert_allclose(np.linalg.eigvalsh(tridiagonal), np.linalg.eigvalsh(SYMMETRIC), atol=1e-12)
    given = [np.r_[0, beside], diagonal + 9, np.r_[beside, 0], TALL[:5]]
    (x,) = called("cusparse_gtsv2_ffi", "f64[5,4]", given)
    np.testing.assert_allclose((tridiagonal + 9 * np.eye(5)) @ x, TALL[:5], atol=1e-12)


@pytest.mark.parametrize("kind", [np.float64, np.complex128])
def test_sparse_systems(kind):
    # The second row is empty but for its diagonal, and the last has an element twice.
    data = np.array([4, -1, 3, 2, 5, 0.5, 1.5], kind) * (1 if kind is np.float64 else 1 + 2j)
    columns, starts = np.array([0, 2, 1, 0, 2, 3, 3], np.int32), np.array([0, 2, 3, 5, 7], np.int32)
    matrix = np.zeros((4, 4), kind)
    np.add.at(matrix, (np.repeat(range(4), np.diff(starts)), columns), data)
    b = np.arange(1.0, 5).astype(kind)
    operands, config = [data, columns, starts, b], "{reorder = 1 : i32, tol = 1.0e-6 : f64}"
    (x,) = called("cusolver_csrlsvqr_ffi", f"{LETTERS[b.dtype.name]}[4]", operands, config)
    np.testing.assert_allclose(matrix @ x, b, atol=1e-12)


def described(*numbers, letters=""):
    """A descriptor as HLO text has it."""
    return "".join(f"\\{byte:03o}" for byte in struct.pack(f"<{len(numbers)}i", *numbers) + letters.encode())


STATUS = ", api_version=API_VERSION_STATUS_RETURNING"


def test_calls_with_descriptors_have_a_result_more():
    work = "s32[], f64[7]"
    packed, taus, info, _ = called(
        "cusolver_geqrf", f"(f64[6,4], f64[4], {work})", [TALL], described(1, 1, 6, 4, 0x8100), STATUS
    )
    assert info == 0
    (q, *_) = called("hipsolver_orgqr", f"(f64[6,4], {work})", [packed, taus], described(1, 1, 6, 4, 4, 0x8100), STATUS)
    np.testing.assert_allclose(q @ np.triu(packed[:4]), TALL, atol=1e-12)
    several = np.stack([SQUARE, SQUARE.T])
    results = "(f64[2,4,4], s32[2,4], s32[2], s8[16])"
    factors, pivots, info, _ = called("cublas_getrf_batched", results, [several], described(1, 2, 4), STATUS)
    (order,) = called("cuda_lu_pivots_to_permutation", "s32[2,4]", [pivots - 1], described(2, 0, 4, 4), STATUS)
    for matrix, both, rows in zip(several, factors, order, strict=True):
        np.testing.assert_allclose((np.tril(both, -1) + np.eye(4)) @ np.triu(both), matrix[rows], atol=1e-12)
    words = [np.full(3, w, np.uint32) for w in (0x13198A2E, 0x03707344, 0x243F6A88, 0x85A308D3)]
    low, _ = called("cu_threefry2x32", "(u32[3], u32[3])", words, described(3, 0), STATUS)
    assert (low == 0xC4923A9C).all()


@pytest.mark.parametrize(
    ("target", "uplo", "part"),
    [("cusolver_syevd", 0, np.tril), ("cusolver_syevj", 1, np.triu), ("hipsolver_syevd", 121, np.triu)],
)
def test_the_triangle_of_a_descriptor_is_read(target, uplo, part):
    results = "(f64[5,5], f64[5], s32[], f64[9])"
    _, values, *_ = called(target, results, [part(SYMMETRIC)], described(1, uplo, 1, 5, 0x8100), STATUS)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(SYMMETRIC), atol=1e-12)


def test_singular_values_by_descriptor():
    # Of a matrix with more columns than rows the library gets the transposed one.
    for a, letters, sides in (
        (TALL, "SS", ((6, 4), (4, 4))),
        (WIDE, "AA", ((3, 3), (5, 5))),
        (TALL, "NN", ((6, 6), (4, 4))),
    ):
        rows, columns = a.shape
        is_transposed = rows < columns
        given = described(1, 1, *(a.shape[::-1] if is_transposed else a.shape), 64, letters=letters)
        shapes = [f"f64[{m},{n}]" for m, n in (sides[::-1] if is_transposed else sides)]
        results = f"(f64[{rows},{columns}], f64[{min(a.shape)}], {', '.join(shapes)}, s32[], f64[3])"
        _, values, *vectors, _, _ = called("cusolver_gesvd", results, [a], given, STATUS)
        np.testing.assert_allclose(values, np.linalg.svd(a, compute_uv=False), atol=1e-12)
        if letters != "NN":
            u, vh = vectors[::-1] if is_transposed else vectors
            np.testing.assert_allclose(u[:, : len(values)] * values @ vh[: len(values)], a, atol=1e-12)
    results = "(f64[6,4], f64[4], f64[6,4], f64[4,4], s32[], f64[3])"
    _, values, u, v, *_ = called("cusolver_gesvdj", results, [TALL], described(1, 1, 6, 4, 64, 1, 1), STATUS)
    np.testing.assert_allclose(u * values @ v.T, TALL, atol=1e-12)


@pytest.mark.parametrize(
    ("target", "config", "rule"),
    [
        ("cusolver_syevd", described(1, 0), "has 8 bytes, and is no descriptor of syevd"),
        ("cusolver_syevd", described(1, 7, 1, 5, 0), "has uplo 7"),
        ("cusolver_gesvd", described(1, 1, 5, 5, 0), "no descriptor of gesvd"),
    ],
)
def test_damaged_descriptors_are_refused(target, config, rule):
    with pytest.raises(ShapeError, match=rule):
        called(target, "(f64[5,5], f64[5], s32[], f64[9])", [SYMMETRIC], config, STATUS)


@pytest.mark.parametrize("target", ["tridiagonal_solve_perturbed_ffi", "cu_tridiagonal_solve_perturbed"])
@pytest.mark.parametrize("kind", ["f32", "f64", "c64"])
def test_tridiagonal_systems_that_may_be_singular(target, kind):
    # The diagonal is small, so that rows are exchanged; of the second system a row is zero.
    below, diagonal, above = (drawn((2, 6), kind, seed) for seed in (1, 2, 3))
    diagonal *= np.array(1e-3, diagonal.dtype)
    below[1, 3] = diagonal[1, 3] = above[1, 3] = 0
    right = drawn((2, 6, 3), kind, 4)
    (x,) = called(target, f"{kind}[2,6,3]", [below, diagonal, above, right])
    system = np.diag(diagonal[0]) + np.diag(below[0, 1:], -1) + np.diag(above[0, :-1], 1)
    np.testing.assert_allclose(system @ x[0], right[0], atol=1e-10 if kind == "f64" else 2e-3)
    assert np.isfinite(x).all()
    assert abs(x[1]).max() > 1e5
    (none,) = called(target, f"{kind}[2,0,3]", [below[:, :0], diagonal[:, :0], above[:, :0], right[:, :0]])
    assert none.shape == (2, 0, 3)


def test_symmetric_products():
    scalars = [np.float64(2), np.float64(3)]
    for transpose, product in ((False, TALL @ TALL.T), (True, TALL.T @ TALL)):
        size = len(product)
        c = np.ones((size, size))
        config = f"{{transpose = {str(transpose).lower()}}}"
        (found,) = called("cusolver_syrk_ffi", f"f64[{size},{size}]", [TALL, c, *scalars], config)
        np.testing.assert_allclose(found, 2 * product + 3, atol=1e-12)


def test_random_bits_are_those_of_jax():
    words = [np.full(3, w, np.uint32) for w in (0x13198A2E, 0x03707344, 0x243F6A88, 0x85A308D3)]
    low, high = called("cu_threefry2x32_ffi", "(u32[3], u32[3])", words)
    # The third vector of the test that Random123 publishes.
    assert (low == 0xC4923A9C).all() and (high == 0x483DF7A0).all()


def test_radix_sort():
    keys = np.array([[3, -0.0, np.nan, 0.0, -np.inf]], np.float32)
    values = np.arange(5, dtype=np.int32)[None]
    for config, wanted in (("", [4, 1, 3, 0, 2]), ('{\\"descending\\":true}', [2, 0, 1, 3, 4])):
        _, found, _ = called(
            "__cub$DeviceRadixSort", "(f32[1,5], s32[1,5], u8[64])", [keys, values], config, attributes=""
        )
        np.testing.assert_array_equal(found, [wanted])


def test_radix_sort_of_the_typed_ffi():
    keys, values = np.int32([[3, 1, 2], [5, 4, 6]]), np.arange(6, dtype=np.float32).reshape(2, 3)
    results = "(s32[2,3], f32[2,3], u8[1])"
    config = "{descending = true, batch_size = 2 : i64}"
    sorted_keys, found, _ = called("xla.gpu.ext.cub_sort_pairs", results, [keys, values], config)
    np.testing.assert_array_equal(sorted_keys, [[3, 2, 1], [6, 5, 4]])
    np.testing.assert_array_equal(found, [[0, 2, 1], [5, 3, 4]])
    (only, _) = called("xla.gpu.ext.cub_sort_keys", "(s32[2,3], u8[1])", [keys], "{descending = false}")
    np.testing.assert_array_equal(only, np.sort(keys))
    with pytest.raises(ShapeError, match="batch_size 3, the keys are"):
        called("xla.gpu.ext.cub_sort_keys", "(s32[2,3], u8[1])", [keys], "{batch_size = 3 : i64}")


def test_memory_that_is_taken_is_zero():
    np.testing.assert_array_equal(called("AllocateBuffer", "s32[3]", []), [[0, 0, 0]])


SELECTION = """HloModule m
gt { a = f32[] parameter(0) b = f32[] parameter(1) c = s32[] parameter(2) d = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=GT }
ENTRY e { x = f32[2,16] parameter(0) i = s32[2,16] iota(), iota_dimension=1
  low = f32[] constant(-inf) none = s32[] constant(-1)
  ROOT r = (f32[2,4], s32[2,4]) custom-call(x, i, low, none), custom_call_target="PartialReduce",
    called_computations={gt}, backend_config={"log2_reduction":2,"reduction_dim":1,"top_k":3} }"""


def test_approximate_selection_is_exact():
    x = drawn((2, 16), "f32", 5)
    for backend in ("cpu", "interpreter"):
        values, places = xlakit.compile(xlakit.HloModule.from_text(SELECTION), backend=backend)(x)
        np.testing.assert_array_equal(values, -np.sort(-x)[:, :4])
        np.testing.assert_array_equal(np.take_along_axis(x, np.asarray(places), 1), values)


@pytest.mark.parametrize(
    ("result", "rule"),
    [("(f32[8], s32[8])", "has another rank"), ("(f32[2,17], s32[2,17])", "more elements")],
)
def test_a_selection_of_another_rank_or_more_elements_is_refused(result, rule):
    text = SELECTION.replace("(f32[2,4], s32[2,4])", result)
    with pytest.raises(ShapeError, match=rule):
        xlakit.compile(xlakit.HloModule.from_text(text), backend="interpreter")


@pytest.mark.parametrize(
    ("target", "result", "config", "rule"),
    [
        ("Qr", "(f64[6,4], f64[3])", "", "result 1"),
        ("Eigh", "(f64[6,4], f64[6])", "1,1,100,1e-6", "square"),
        ("Eigh", "(f64[6,4], f64[6])", "1,1,100,1e-6,3", "is 1,1,100,1e-6,3"),
        ("cusolver_potrf_ffi", "(f64[6,4], s32[])", "{lower = true}", "square"),
        ("cusolver_syevd_ffi", "(f64[6,4], f64[4], s32[])", "{lower = 3 : i64}", "square"),
        ("cu_lu_pivots_to_permutation", "s32[6]", "{}", "s32"),
    ],
)
def test_shapes_that_no_call_has_are_refused(target, result, config, rule):
    with pytest.raises(ShapeError, match=rule):
        called(target, result, [TALL], config, attributes="")


WORDS = [0, 1, -1, 2**31, 2**32, -(2**32), -(2**31), 2**63 - 1, -(2**63), 0x0123456789ABCDEF]


@pytest.mark.parametrize("whole", [np.int64, np.uint64])
@pytest.mark.parametrize("part", [np.int32, np.uint32])
def test_parts_of_64_bit_integers(whole, part):
    words = np.array(WORDS, np.int64).view(whole).reshape(2, 5)
    kind = f"{LETTERS[part.__name__]}[2,5]"
    pairs = words.view(part).reshape(2, 5, 2)
    (low,), (high,) = (called(f"X64Split{side}", kind, [words], attributes="") for side in ("Low", "High"))
    assert low.dtype == high.dtype == part
    np.testing.assert_array_equal(np.stack([low, high], -1), pairs)
    (again,) = called("X64Combine", f"{LETTERS[whole.__name__]}[2,5]", [low, high], attributes="")
    np.testing.assert_array_equal(again, words)
    assert again.dtype == whole


def test_parts_of_64_bit_floats_have_no_meaning():
    with pytest.raises(UnsupportedError, match="'X64SplitLow' of f64 that gives f32"):
        called("X64SplitLow", "f32[2]", [np.ones(2)], attributes="")
