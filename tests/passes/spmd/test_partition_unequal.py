"""Products and reductions of arrays in unequal parts: 16 rows on four devices, of which the last two are cut off."""

import pytest
from split_programs import COLUMNS, ROWS, WHOLE, X_ROWS, check

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


def test_two_dimensions_in_unequal_parts_are_gathered():
    check(
        f"""p = f32[18,6] parameter(0), sharding={_BOTH_WAYS}
        x = f32[17,5] slice(p), slice={{[0:17],[0:5]}}
        ROOT d = f32[5,5] dot(x, x), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}, sharding={WHOLE}""",
        None,
    )


def test_columns_in_unequal_parts_beside_split_rows():
    check(
        f"""p = f32[16,8] parameter(0), sharding={COLUMNS}
        x = f32[16,7] slice(p), slice={{[0:16],[0:7]}}
        q = f32[7,4] parameter(1), sharding={WHOLE}
        ROOT d = f32[16,4] dot(x, q), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, sharding={ROWS}""",
        None,
    )
