"""Convolutions and pooling, channels last."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.program import Bound, Program, normal, workload

# Letters of the spatial axes, as JAX names dimension numbers.
_SPATIAL = "XYZ"


def _convolve(x: Any, kernel: Any, padding: int, **options: Any) -> Any:
    axes = _SPATIAL[: x.ndim - 2]
    numbers = (f"N{axes}C", f"{axes}IO", f"N{axes}C")
    return lax.conv_general_dilated(
        x,
        kernel,
        options.get("strides", (1,) * len(axes)),
        [(padding, padding)] * len(axes),
        lhs_dilation=options.get("lhs_dilation"),
        rhs_dilation=options.get("rhs_dilation"),
        dimension_numbers=numbers,
        feature_group_count=options.get("groups", 1),
    )


def channels_first(x: Any) -> Any:
    """A PyTorch view of [N, spatial..., C] as [N, C, spatial...]; the memory stays channels last."""
    return x.permute(0, x.dim() - 1, *range(1, x.dim() - 1))


def channels_last(x: Any) -> Any:
    """The way back."""
    return x.permute(0, *range(2, x.dim()), 1)


def kernel_first(t: Any, kernel: Any) -> Any:
    """A kernel [spatial..., I, O] as PyTorch's [O, I, spatial...], laid out as it likes it."""
    rank = kernel.dim()
    moved = kernel.permute(rank - 1, rank - 2, *range(rank - 2))
    formats = {4: t.channels_last, 5: t.channels_last_3d}
    return moved.contiguous(memory_format=formats.get(rank, t.contiguous_format))


def _plain(
    rng: np.random.Generator,
    image: Sequence[int],
    window: Sequence[int],
    outputs: int,
    groups: int = 1,
    dilation: int = 1,
) -> Program:
    """A convolution that keeps the image's size. image: [N, spatial..., C]."""
    channels, rank = image[-1], len(window)
    padding = dilation * (window[0] // 2)
    terms = math.prod(window) * channels // groups

    def with_torch(t: Any, x: Any, kernel: Any) -> Any:
        convolve = (t.nn.functional.conv1d, t.nn.functional.conv2d, t.nn.functional.conv3d)[rank - 1]
        return channels_last(convolve(x, kernel, padding=padding, dilation=dilation, groups=groups))

    return Program(
        [normal(rng, *image), normal(rng, *window, channels // groups, outputs, scale=terms**-0.5)],
        jax=lambda x, k: _convolve(x, k, padding, groups=groups, rhs_dilation=(dilation,) * rank),
        torch=with_torch,
        torch_arguments=lambda t, x, k: (channels_first(x), kernel_first(t, k)),
        flops=2.0 * math.prod(image[:-1]) * outputs * terms,
    )


_IMAGE = {"batch": 8, "size": 56, "channels": 64}
_SMALL = {"batch": 2, "size": 7, "channels": 8}


@workload("convolution", full=_IMAGE, quick=_SMALL, bound=Bound.ARITHMETIC)
def conv_3x3(rng: np.random.Generator, batch: int, size: int, channels: int) -> Program:
    """The convolution of most networks."""
    return _plain(rng, (batch, size, size, channels), (3, 3), channels)


@workload("convolution", full=_IMAGE, quick=_SMALL, bound=Bound.ARITHMETIC)
def conv_1x1(rng: np.random.Generator, batch: int, size: int, channels: int) -> Program:
    """A matrix product in disguise."""
    return _plain(rng, (batch, size, size, channels), (1, 1), 4 * channels)


@workload("convolution", full={"batch": 4, "size": 56, "channels": 96}, quick=_SMALL, bound=Bound.ARITHMETIC)
def conv_depthwise_7x7(rng: np.random.Generator, batch: int, size: int, channels: int) -> Program:
    """Each channel by itself."""
    return _plain(rng, (batch, size, size, channels), (7, 7), channels, groups=channels)


@workload("convolution", full=_IMAGE, quick=_SMALL, bound=Bound.ARITHMETIC)
def conv_grouped(rng: np.random.Generator, batch: int, size: int, channels: int) -> Program:
    """Eight groups of channels."""
    return _plain(rng, (batch, size, size, channels), (3, 3), channels, groups=8)


@workload("convolution", full=_IMAGE, quick=_SMALL, bound=Bound.ARITHMETIC)
def conv_dilated(rng: np.random.Generator, batch: int, size: int, channels: int) -> Program:
    """A window with holes."""
    return _plain(rng, (batch, size, size, channels), (3, 3), channels, dilation=2)


@workload("convolution", full={"batch": 8, "size": 28, "channels": 64}, quick=_SMALL, bound=Bound.ARITHMETIC)
def conv_transposed(rng: np.random.Generator, batch: int, size: int, channels: int) -> Program:
    """An image with holes: twice the size comes out."""

    def with_torch(t: Any, x: Any, kernel: Any) -> Any:
        return channels_last(t.nn.functional.conv_transpose2d(x, kernel, stride=2, padding=1))

    return Program(
        [normal(rng, batch, size, size, channels), normal(rng, 4, 4, channels, channels, scale=channels**-0.5 / 2)],
        jax=lambda x, k: _convolve(x, k, 2, lhs_dilation=(2, 2)),
        torch=with_torch,
        # PyTorch says it as a gradient: input channels first, and the window the other way round.
        torch_arguments=lambda t, x, k: (channels_first(x), k.flip(0, 1).permute(2, 3, 0, 1).contiguous()),
        flops=2.0 * batch * (2 * size) ** 2 * channels * channels * 4,
    )


@workload(
    "convolution",
    full={"batch": 16, "length": 2048, "channels": 64},
    quick={"batch": 2, "length": 19, "channels": 4},
    bound=Bound.ARITHMETIC,
)
def conv_1d(rng: np.random.Generator, batch: int, length: int, channels: int) -> Program:
    """A convolution along a sequence."""
    return _plain(rng, (batch, length, channels), (5,), channels)


@workload(
    "convolution",
    full={"batch": 2, "size": 24, "channels": 32},
    quick={"batch": 1, "size": 5, "channels": 3},
    bound=Bound.ARITHMETIC,
)
def conv_3d(rng: np.random.Generator, batch: int, size: int, channels: int) -> Program:
    """A convolution of a volume."""
    return _plain(rng, (batch, size, size, size, channels), (3, 3, 3), channels)


def _gradient(rng: np.random.Generator, batch: int, size: int, channels: int, of_filter: bool) -> Program:
    image, kernel = (batch, size, size, channels), (3, 3, channels, channels)
    flops = 2.0 * math.prod(image) * channels * 9

    def gradient(known: Any, cotangent: Any) -> Any:
        if of_filter:
            return jax.vjp(lambda k: _convolve(known, k, 1), jnp.zeros(kernel))[1](cotangent)[0]
        return jax.vjp(lambda x: _convolve(x, known, 1), jnp.zeros(image))[1](cotangent)[0]

    def with_torch(t: Any, x: Any, k: Any, cotangent: Any) -> Any:
        mask = [not of_filter, of_filter, False]
        ones, zeros = [1, 1], [0, 0]
        results = t.ops.aten.convolution_backward(cotangent, x, k, None, ones, ones, ones, False, zeros, 1, mask)
        return results[1].permute(2, 3, 1, 0) if of_filter else channels_last(results[0])

    def rearranged(t: Any, known: Any, cotangent: Any) -> Any:
        # PyTorch wants both, though it reads one.
        x = channels_first(known if of_filter else t.zeros(image))
        return x, kernel_first(t, t.zeros(kernel) if of_filter else known), channels_first(cotangent)

    known = normal(rng, *(image if of_filter else kernel), scale=1 if of_filter else (9 * channels) ** -0.5)
    return Program([known, normal(rng, *image)], gradient, with_torch, rearranged, flops=flops, tolerance=4)


@workload("convolution", full=_IMAGE, quick=_SMALL, bound=Bound.ARITHMETIC)
def conv_input_gradient(rng: np.random.Generator, batch: int, size: int, channels: int) -> Program:
    """The gradient of conv_3x3 with respect to the image."""
    return _gradient(rng, batch, size, channels, of_filter=False)


@workload("convolution", full=_IMAGE, quick=_SMALL, bound=Bound.ARITHMETIC)
def conv_filter_gradient(rng: np.random.Generator, batch: int, size: int, channels: int) -> Program:
    """The gradient of conv_3x3 with respect to the kernel."""
    return _gradient(rng, batch, size, channels, of_filter=True)


_POOLED = {"batch": 8, "size": 112, "channels": 64}


def max_pool_3x3(x: Any) -> Any:
    """The largest of each 3x3 window, at every second place."""
    padding = ((0, 0), (1, 1), (1, 1), (0, 0))
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), padding)


@workload("convolution", full=_POOLED, quick=_SMALL, bound=Bound.MEMORY)
def max_pool(rng: np.random.Generator, batch: int, size: int, channels: int) -> Program:
    """The largest of each window."""
    return Program(
        [normal(rng, batch, size, size, channels)],
        jax=max_pool_3x3,
        torch=lambda t, x: channels_last(t.nn.functional.max_pool2d(x, 3, 2, 1)),
        torch_arguments=lambda t, x: (channels_first(x),),
    )


@workload("convolution", full=_POOLED, quick=_SMALL, bound=Bound.MEMORY)
def avg_pool(rng: np.random.Generator, batch: int, size: int, channels: int) -> Program:
    """The mean of each 2x2 window."""
    return Program(
        [normal(rng, batch, size, size, channels)],
        jax=lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4,
        torch=lambda t, x: channels_last(t.nn.functional.avg_pool2d(x, 2, 2)),
        torch_arguments=lambda t, x: (channels_first(x),),
    )


@workload("convolution", full=_POOLED, quick=_SMALL, bound=Bound.MEMORY)
def max_pool_gradient(rng: np.random.Generator, batch: int, size: int, channels: int) -> Program:
    """The gradient of max_pool: each cotangent goes to the largest of its window."""
    pooled = (size + 1) // 2

    def with_torch(t: Any, x: Any, cotangent: Any) -> Any:
        return channels_last(t.autograd.grad(t.nn.functional.max_pool2d(x, 3, 2, 1), x, cotangent)[0])

    return Program(
        [normal(rng, batch, size, size, channels), normal(rng, batch, pooled, pooled, channels)],
        jax=lambda x, cotangent: jax.vjp(max_pool_3x3, x)[1](cotangent)[0],
        torch=with_torch,
        torch_arguments=lambda t, x, cotangent: (channels_first(x), channels_first(cotangent)),
        gradients=(0,),
    )
