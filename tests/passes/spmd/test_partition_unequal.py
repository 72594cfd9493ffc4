"""Products and reductions of arrays in unequal parts: 16 rows on four devices, of which the last two are cut off."""

import pytest
from split_programs import BOTH, COLUMNS, ROWS, WHOLE, X_ROWS, check

_X = f"p = f32[16,8] parameter(0), sharding={ROWS}\n x = f32[14,8] slice(p), slice={{[0:14],[0:8]}}\n"
_BOTH_WAYS = "{devices=[2,2]<=[4]}"


def test_a_product_over_unequal_parts_adds_up():
    # The last part holds rows that were cut off: they must not count.
    check(
        f"{_X} ROOT d = f32[8,8] dot(x, x), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}, sharding={WHOLE}",
        {"all-reduce": 1},
    )


def test_a_product_of_unequal_parts_with_a_whole_array():
    check(
        f"""{_X} q = f32[14,3] parameter(1), sharding={WHOLE}
        ROOT d = f32[8,3] dot(x, q), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}, sharding={WHOLE}""",
        {"all-reduce": 1},
    )


def test_a_product_over_unequal_parts_whose_other_columns_are_split():
    # Two halves of 18 rows, of which 17 count, and of the columns.
    check(
        f"""p = f32[18,8] parameter(0), sharding={_BOTH_WAYS}
        x = f32[17,8] slice(p), slice={{[0:17],[0:8]}}
        q = f32[18,4] parameter(1), sharding={X_ROWS}
        y = f32[17,4] slice(q), slice={{[0:17],[0:4]}}
        ROOT d = f32[8,4] dot(x, y), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}},
          sharding={{devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}}""",
        {"all-reduce": 1},
    )


def test_a_large_product_of_few_unequal_rows_is_gathered():
    # Sums of 64x64 cost more than the 6 rows of each.
    check(
        f"""p = f32[8,64] parameter(0), sharding={ROWS}
        x = f32[6,64] slice(p), slice={{[0:6],[0:64]}}
        ROOT d = f32[64,64] dot(x, x), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}, sharding={WHOLE}""",
        {"all-gather": 1},
    )


def test_norms_of_unequal_rows_stay_where_they_are():
    check(
        f"""{_X} zero = f32[] constant(0)
        n = f32[14] reduce(x, zero), dimensions={{1}}, to_apply=add
        b = f32[14,8] broadcast(n), dimensions={{0}}
        y = f32[14,8] subtract(x, b)
        ROOT r = f32[8] reduce(y, zero), dimensions={{0}}, to_apply=add, sharding={WHOLE}""",
        {"all-reduce": 1},
    )


@pytest.mark.parametrize("operation", ["reduce", "dot"])
def test_sums_along_split_features_of_unequal_rows(operation):
    # 17 of 18 rows in two parts, features in two others: partial sums are added up within the rows.
    middle = {
        "reduce": "n = f32[17] reduce(x, zero), dimensions={1}, to_apply=add",
        "dot": """w = f32[8] parameter(1), sharding={devices=[2,2]<=[2,2]T(1,0) last_tile_dim_replicate}
        n = f32[17] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}""",
    }[operation]
    check(
        f"""p = f32[18,8] parameter(0), sharding={_BOTH_WAYS}
        x = f32[17,8] slice(p), slice={{[0:17],[0:8]}}
        zero = f32[] constant(0)
        {middle}
        m = f32[17] multiply(n, n)
        ROOT r = f32[] reduce(m, zero), dimensions={{0}}, to_apply=add, sharding={WHOLE}""",
        {"all-reduce": 2},
    )


def test_a_step_of_training_on_unequal_rows_sends_gradients_alone():
    check(
        f"""{_X} w = f32[8,8] parameter(1), sharding={WHOLE}
        h = f32[14,8] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
        g = f32[14,8] multiply(h, h)
        d = f32[8,8] dot(x, g), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
        ROOT r = f32[8,8] subtract(w, d), sharding={WHOLE}""",
        {"all-reduce": 1},
    )


def test_a_product_over_unequal_rows_keeps_unequal_columns():
    # Sums over the rows are added up within the columns, and only then joined: 17 rows and 5 columns in two parts each.
    check(
        f"""p = f32[18,6] parameter(0), sharding={_BOTH_WAYS}
        x = f32[17,5] slice(p), slice={{[0:17],[0:5]}}
        q = f32[18,2] parameter(1), sharding={X_ROWS}
        y = f32[17,2] slice(q), slice={{[0:17],[0:2]}}
        ROOT d = f32[5,2] dot(x, y), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}, sharding={WHOLE}""",
        {"all-reduce": 1, "all-gather": 1},
    )


def test_unequal_rows_are_joined_within_unequal_columns():
    check(
        f"""p = f32[18,6] parameter(0), sharding={_BOTH_WAYS}
        x = f32[17,5] slice(p), slice={{[0:17],[0:5]}}
        w = f32[5,17] parameter(1), sharding={WHOLE}
        ROOT d = f32[17,17] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, sharding={WHOLE}""",
        None,
    )


def test_unequal_rows_beside_split_columns_go_through_a_reshape():
    # The columns are as the reshape's users want them; that must not drop the rows' parts.
    check(
        f"""p = f32[18,8] parameter(0), sharding={_BOTH_WAYS}
        x = f32[17,8] slice(p), slice={{[0:17],[0:8]}}
        y = f32[1,17,8] reshape(x)
        zero = f32[] constant(0)
        ROOT r = f32[1,8] reduce(y, zero), dimensions={{1}}, to_apply=add,
          sharding={{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}}""",
        {"all-reduce": 1},
    )


def test_columns_in_unequal_parts_beside_split_rows():
    check(
        f"""p = f32[16,8] parameter(0), sharding={COLUMNS}
        x = f32[16,7] slice(p), slice={{[0:16],[0:7]}}
        q = f32[7,4] parameter(1), sharding={WHOLE}
        ROOT d = f32[16,4] dot(x, q), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, sharding={ROWS}""",
        None,
    )


_OPERATIONS = {
    "slice": "y = f32[14,5] slice(x), slice={[0:14],[2:7]}",
    "pad": "y = f32[14,11] pad(x, one), padding=0_0x1_2",
    "concatenate": "y = f32[14,16] concatenate(x, x), dimensions={1}",
    "sort": "y = f32[14,8] sort(x), dimensions={1}, to_apply=less",
    "reduce-window": """y = f32[14,8] reduce-window(x, zero), window={size=1x3 pad=0_0x1_1}, to_apply=add""",
    "dynamic-slice": """i = s32[] constant(0)
      j = s32[] constant(3)
      y = f32[14,4] dynamic-slice(x, i, j), dynamic_slice_sizes={14,4}""",
    "dynamic-update-slice": """i = s32[] constant(0)
      j = s32[] constant(3)
      u = f32[14,2] slice(x), slice={[0:14],[0:2]}
      y = f32[14,8] dynamic-update-slice(x, u, i, j)""",
    "gather": """k = s32[3] constant({6,0,3})
      y = f32[14,3] gather(x, k), offset_dims={0}, collapsed_slice_dims={1}, start_index_map={1},
        index_vector_dim=1, slice_sizes={14,1}""",
    "convolution": """c = f32[14,8,1] reshape(x)
      w = f32[3,1,2] broadcast(one), dimensions={}
      v = f32[14,6,2] convolution(c, w), window={size=3}, dim_labels=b0f_0io->b0f
      y = f32[14,12] reshape(v)""",
    "sorted pairs": """n = f32[14,8] negate(x)
      s = (f32[14,8], f32[14,8]) sort(x, n), dimensions={1}, is_stable=true, to_apply=less_first
      y = f32[14,8] get-tuple-element(s), index=1""",
    "batched product": """l = f32[14,2,4] reshape(x)
      y = f32[14,2,2] dot(l, l), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},
        rhs_contracting_dims={2}""",
}
_LESS = "less { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a, b), direction=LT }"
_LESS_FIRST = """less_first { a = f32[] parameter(0) b = f32[] parameter(1)
  c = f32[] parameter(2) d = f32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT }"""


@pytest.mark.parametrize("operation", _OPERATIONS)
def test_operations_beside_unequal_rows_stay_where_they_are(operation):
    text = _OPERATIONS[operation]
    rank = "0,1,2" if operation == "batched product" else "0,1"
    shape = text.rpartition("y = ")[2].split(" ")[0]
    check(
        f"""{_X} zero = f32[] constant(0)
        one = f32[] constant(1)
        {text}
        z = {shape} multiply(y, y)
        ROOT r = f32[] reduce(z, zero), dimensions={{{rank}}}, to_apply=add, sharding={WHOLE}""",
        {"all-reduce": 1},
        _LESS,
        _LESS_FIRST,
    )


def test_a_convolution_over_unequal_images_adds_up():
    # The gradient of a kernel: positions of the images are those of the window, and images are added up.
    check(
        f"""p = f32[16,6,1] parameter(0), sharding={{devices=[4,1,1]<=[4]}}
        x = f32[14,6,1] slice(p), slice={{[0:14],[0:6],[0:1]}}
        q = f32[16,4,2] parameter(1), sharding={{devices=[4,1,1]<=[4]}}
        g = f32[14,4,2] slice(q), slice={{[0:14],[0:4],[0:2]}}
        ROOT k = f32[3,1,2] convolution(x, g), window={{size=4}}, dim_labels=f0b_i0o->0bf, sharding={WHOLE}""",
        {"all-reduce": 1},
    )


def test_groups_of_features_are_not_in_unequal_parts():
    check(
        """p = f32[2,5,8] parameter(0), sharding={devices=[1,1,4]<=[4]}
        x = f32[2,5,6] slice(p), slice={[0:2],[0:5],[0:6]}
        w = f32[3,1,6] parameter(1), sharding={replicated}
        ROOT y = f32[2,3,6] convolution(x, w), window={size=3}, dim_labels=b0f_0io->b0f, feature_group_count=6,
          sharding={replicated}""",
        None,
    )


# Rows beyond the last one hold what no row of the program has: factors of them are NaN, which must not be added.
_MATRICES = """l = f32[14,2,4] reshape(x)
      s = f32[14,2,2] dot(l, l), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},
        rhs_contracting_dims={2}
      i = s32[14,2,2] iota(), iota_dimension=1
      j = s32[14,2,2] iota(), iota_dimension=2
      d = pred[14,2,2] compare(i, j), direction=EQ
      ones = f32[14,2,2] broadcast(one), dimensions={}
      t = f32[14,2,2] add(s, ones)
      m = f32[14,2,2] select(d, t, s)
      f = f32[14,2,2] cholesky(m), lower=true"""
_FACTORS = {
    "cholesky": f"{_MATRICES}\n y = f32[14,4] reshape(f)",
    "triangular-solve": f"""{_MATRICES}
      z = f32[14,2,2] triangular-solve(f, s), left_side=true, lower=true, transpose_a=NO_TRANSPOSE
      y = f32[14,4] reshape(z)""",
    "fft": "c = c64[14,5] fft(x), fft_type=RFFT, fft_length={8}\n y = f32[14,5] imag(c)",
    "topk": "k = (f32[14,3], s32[14,3]) topk(x), k=3, largest=true\n y = f32[14,3] get-tuple-element(k), index=0",
}


@pytest.mark.parametrize("operation", _FACTORS)
def test_factors_and_transforms_of_unequal_rows(operation):
    text = f"""{_X} zero = f32[] constant(0)
        one = f32[] constant(1)
        {_FACTORS[operation]}
        """
    shape = text.rpartition("y = ")[2].split(" ")[0]
    check(f"{text} ROOT r = {shape} negate(y), sharding={WHOLE}", None)
    check(
        f"""{text} zeros = {shape} broadcast(zero), dimensions={{}}
        nothing = {shape} multiply(y, zeros)
        ROOT r = f32[] reduce(nothing, zero), dimensions={{0,1}}, to_apply=add, sharding={WHOLE}""",
        {"all-reduce": 1},
    )


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (15, {"all-reduce": 1}),
        # Without rows for the last device the array stays whole.
        (9, {}),
    ],
)
def test_a_whole_array_is_split_in_unequal_parts_where_that_is_asked(rows, expected):
    body = f"""x = f32[{rows},2] parameter(0), sharding={WHOLE}
        y = f32[{rows},2] custom-call(x), custom_call_target="Sharding", sharding={ROWS}
        s = f32[{rows},2] multiply(y, y) zero = f32[] constant(0)
        ROOT r = f32[2] reduce(s, zero), dimensions={{0}}, to_apply=add, sharding={WHOLE}"""
    check(body, expected, sizes=("multiply", (4, 2)) if expected else None)


def test_a_stencil_that_is_asked_for_in_unequal_parts_is_computed_in_parts():
    body = f"""x = f32[14,3] parameter(0), sharding={WHOLE}
        y = f32[14,3] custom-call(x), custom_call_target="Sharding", sharding={BOTH}
        zero = f32[] constant(0) a = f32[16,3] pad(y, zero), padding=1_1x0_0
        up = f32[14,3] slice(a), slice={{[0:14], [0:3]}} down = f32[14,3] slice(a), slice={{[2:16], [0:3]}}
        ROOT r = f32[14,3] add(up, down), sharding={WHOLE}"""
    check(body, {"collective-permute": 2, "all-gather": 2}, sizes=("add", (7, 2)))
