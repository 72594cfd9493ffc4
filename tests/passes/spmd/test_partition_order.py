"""What depends on the order along a split dimension: running sums."""

import pytest
from split_programs import ROWS, check

from xlakit.passes.analysis.traffic import traffic


def sends(split):
    """What a device sends, in elements of 4 bytes."""
    return sum(t.total for t in traffic(split)) / 4


@pytest.mark.parametrize("size", [16, 15, 10, 9])  # the last: three parts, and one of nothing
@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize(("opcode", "init"), [("add", "5"), ("maximum", "-1"), ("multiply", "3")])
def test_running_sums_send_one_number_of_each_part(size, back, opcode, init):
    reducer = f"w {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] {opcode}(a, b) }}"
    window = f"size={size}x1 pad={0 if back else size - 1}_{size - 1 if back else 0}x0_0"
    rest = f", sharding={ROWS}" if size < 16 else ""
    split = check(
        f"x = f32[{size},2] parameter(0), sharding={ROWS} z = f32[] constant({init}) "
        f"ROOT r = f32[{size},2] reduce-window(x, z), window={{{window}}}, to_apply=w{rest}",
        {"all-gather": 1},
        reducer,
    )
    assert sends(split) == 3 * 2
    assert split.entry.root.shape.dimensions == (-(-size // 4), 2)


def test_a_window_that_misses_the_first_element_is_no_running_sum():
    window = "window={size=15x1 pad=14_0x0_0}, to_apply=add"
    body = f"x = f32[16,2] parameter(0), sharding={ROWS} z = f32[] constant(0) "
    split = check(f"{body} ROOT r = f32[16,2] reduce-window(x, z), {window}", None)
    assert sends(split) > 3 * 2
