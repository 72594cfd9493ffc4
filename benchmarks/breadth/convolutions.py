"""Convolutions of one to three dimensions, their forms, types and gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.breadth.row import array, row
from benchmarks.program import Workload


@dataclass(frozen=True, slots=True)
class _Form:
    """A convolution. space: sizes of the image; channels: into and out of it; window: its side in each dimension."""

    name: str
    space: tuple[int, ...]
    channels: tuple[int, int]
    window: int
    batch: int = 2
    stride: int = 1
    dilation: int = 1
    dilated_input: int = 1
    groups: int = 1
    padding: str = "SAME"


_FORMS = (
    _Form("1d", (1000,), (16, 32), 5),
    _Form("1d_audio", (16000,), (1, 16), 25, stride=4),
    _Form("1d_causal", (2000,), (64, 64), 3, dilation=8),
    _Form("2d_first", (56, 56), (3, 32), 7, stride=2),
    _Form("2d_3x3", (28, 28), (32, 64), 3),
    _Form("2d_3x3_wide", (14, 14), (128, 128), 3),
    _Form("2d_1x1", (28, 28), (64, 128), 1),
    _Form("2d_5x5", (28, 28), (16, 16), 5, padding="VALID"),
    _Form("2d_stride", (28, 28), (32, 64), 3, stride=2),
    _Form("2d_dilated", (28, 28), (32, 32), 3, dilation=2),
    _Form("2d_transposed", (14, 14), (32, 32), 3, dilated_input=2),
    _Form("2d_grouped", (28, 28), (32, 32), 3, groups=4),
    _Form("2d_depthwise", (28, 28), (64, 64), 3, groups=64),
    _Form("2d_depthwise_5", (56, 56), (32, 32), 5, groups=32, stride=2),
    _Form("2d_tiny", (8, 8), (1, 4), 3, batch=1),
    _Form("2d_image", (256, 256), (1, 1), 5, batch=1),
    _Form("2d_one_channel", (128, 128), (1, 16), 3),
    _Form("2d_odd", (31, 29), (7, 13), 3),
    _Form("2d_batch", (8, 8), (16, 16), 3, batch=64),
    _Form("3d", (10, 16, 16), (8, 16), 3),
    _Form("3d_stride", (10, 16, 16), (8, 16), 3, stride=2),
)


def _convolution(form: _Form, *, last: bool) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
    """The function, and the shapes of image and kernel, with channels last or first."""
    rank = len(form.space)
    letters = "DHW"[-rank:]
    image = f"N{letters}C" if last else f"NC{letters}"
    weights = f"{letters}IO" if last else f"OI{letters}"
    into, out = form.channels
    window = (form.window,) * rank
    each = into // form.groups
    shape = (form.batch, *form.space, into) if last else (form.batch, into, *form.space)
    kernel = (*window, each, out) if last else (out, each, *window)

    def convolve(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x,
            w,
            (form.stride,) * rank,
            [(1, 1)] * rank if form.dilated_input > 1 else form.padding,
            lhs_dilation=(form.dilated_input,) * rank,
            rhs_dilation=(form.dilation,) * rank,
            dimension_numbers=(image, weights, image),
            feature_group_count=form.groups,
        )

    return convolve, shape, kernel


def rows() -> Iterator[Workload]:
    """Each form with channels last and first, in F32, BF16 and F64, with both gradients."""
    for form in _FORMS:
        for last in (True, False):
            convolve, shape, kernel = _convolution(form, last=last)
            place = "last" if last else "first"
            for kind in ("f32", "bf16", "f64", "f16") if last else ("f32",):
                name = f"conv {form.name} {place} {kind}"
                yield row("convolutions", name, convolve, array(kind, *shape), array(kind, *kernel), tolerance=100)

            def loss(x: Any, w: Any, convolve: Any = convolve) -> Any:
                return jnp.sum(convolve(x, w) ** 2)

            for number, of in enumerate(("input", "kernel")):
                yield row(
                    "convolutions",
                    f"conv_{of}_gradient {form.name} {place} f32",
                    jax.grad(loss, argnums=number),
                    array("f32", *shape),
                    array("f32", *kernel),
                    tolerance=100,
                )
