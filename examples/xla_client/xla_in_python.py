"""XLA in Python: a notebook for `xla_client`, in cells.

Editors and Jupytext open it as a notebook; `python examples/xla_client/xla_in_python.py` runs it from top to bottom.
With `from jaxlib import xla_client` it runs on jaxlib 0.6.0, the last release that has this interface.
"""

# %% [markdown]
# XLA compiles programs of arrays. A program is a graph of operations, which is built once, compiled for the devices of
# a client, and then run with any arguments of the shapes that it was built for.

# %%
import numpy as np

from xlakit.compat import xla_client as xc

ops = xc.ops
client = xc.make_cpu_client()


def compiled(computation):
    """An executable of a computation, as a function from arrays of NumPy to a list of them."""
    module = xc._xla.mlir.xla_computation_to_mlir_module(computation)
    executable = client.compile(module)

    def run(*arguments):
        buffers = [client.buffer_from_pyval(np.asarray(argument)) for argument in arguments]
        return [np.asarray(result) for result in executable.execute(buffers)]

    return run


# %% [markdown]
# ## A graph
#
# A builder collects the operations of one computation. Each function of `ops` adds one, and gives a handle to its
# value; nothing is calculated yet. The value that was added last is the result.

# %%
builder = xc.XlaBuilder("hypotenuse")
side = xc.Shape.array_shape(np.dtype(np.float32), ())
a = ops.Parameter(builder, 0, side)
b = ops.Parameter(builder, 1, side)
ops.Sqrt(ops.Add(ops.Mul(a, a), ops.Mul(b, b)))
hypotenuse = builder.build()

print(hypotenuse.as_hlo_text())
(length,) = compiled(hypotenuse)(np.float32(3), np.float32(4))
print("the hypotenuse is", length)

# %% [markdown]
# ## Types and shapes
#
# Every value has a shape: a type of elements and the sizes of its dimensions. Both operands of an operation have the
# same type. Python's numbers are 64 bits wide here, so that a constant for an array of F32 is written as a number of
# NumPy.

# %%
builder = xc.XlaBuilder("shapes")
matrix = ops.Constant(builder, np.arange(6, dtype=np.float32).reshape(2, 3))
offsets = ops.Constant(builder, np.float32([10, 20, 30]))
print(builder.get_shape(matrix), builder.get_shape(offsets))

# %% [markdown]
# An operand of fewer dimensions is repeated along those that `broadcast_dimensions` leaves out: here the vector belongs
# to dimension 1. A scalar fits everything.

# %%
shifted = ops.Add(matrix, offsets, broadcast_dimensions=[1])
ops.Mul(shifted, ops.Constant(builder, np.float32(0.5)))
print(compiled(builder.build())()[0])

# %% [markdown]
# What does not fit is an error when the computation is built. It names the operation and the shapes.

# %%
builder = xc.XlaBuilder("mistake")
ops.Add(ops.Constant(builder, np.zeros(2, np.float32)), ops.Constant(builder, np.zeros(3, np.float32)))
try:
    builder.build()
except xc.XlaRuntimeError as error:
    print(str(error).split("\n", maxsplit=1)[0])


# %% [markdown]
# ## Computations that call computations
#
# A reduction takes another computation, of two scalars, that says how elements are combined.


# %%
def scalar_function(name, function, dtype=np.float32):
    """A computation of two scalars."""
    inner = xc.XlaBuilder(name)
    shape = xc.Shape.array_shape(np.dtype(dtype), ())
    function(ops.Parameter(inner, 0, shape), ops.Parameter(inner, 1, shape))
    return inner.build()


data = np.random.default_rng(0).normal(size=(1000, 3)).astype(np.float32)
builder = xc.XlaBuilder("standardize")
x = ops.Parameter(builder, 0, xc.shape_from_pyval(data))
zero, count = ops.Constant(builder, np.float32(0)), ops.Constant(builder, np.float32(len(data)))
add = scalar_function("add", ops.Add)
mean = ops.Div(ops.Reduce(builder, [x], [zero], add, [0]), count)
centered = ops.Sub(x, mean, broadcast_dimensions=[1])
variance = ops.Div(ops.Reduce(builder, [ops.Mul(centered, centered)], [zero], add, [0]), count)
standardized = ops.Mul(centered, ops.Rsqrt(variance), broadcast_dimensions=[1])
ops.Tuple(builder, [standardized, mean, variance])
values, mean, variance = compiled(builder.build())(data)
print("standard deviations after:", values.std(axis=0).round(4))


# %% [markdown]
# ## Loops
#
# A loop is a value, too: its state goes through `body` as long as `condition` holds for it. A state of several parts is
# a tuple. Here Newton's iteration finds cube roots, and counts its steps.


# %%
def loop(condition, body, state_shape):
    """The two computations of a loop, from functions of a builder and the parts of its state."""
    made = []
    for name, function in (("condition", condition), ("body", body)):
        inner = xc.XlaBuilder(name)
        state = ops.Parameter(inner, 0, state_shape)
        parts = [ops.GetTupleElement(state, i) for i in range(len(state_shape.tuple_shapes()))]
        result = function(inner, *parts)
        made.append(inner.build(ops.Tuple(inner, list(result)) if isinstance(result, tuple) else result))
    return made


targets = np.float64([1, 8, 27, 1000])
state_shape = xc.shape_from_pyval((np.int32(0), targets, targets))


def goes_on(c, step, guess, target):
    error = ops.Abs(ops.Sub(ops.Mul(guess, ops.Mul(guess, guess)), target))
    most = ops.Reduce(c, [error], [ops.Constant(c, 0.0)], scalar_function("max", ops.Max, np.float64), [0])
    return ops.And(ops.Gt(most, ops.Constant(c, 1e-9)), ops.Lt(step, ops.Constant(c, np.int32(100))))


def newton(c, step, guess, target):
    quotient = ops.Div(target, ops.Mul(guess, guess))
    better = ops.Div(ops.Add(ops.Add(guess, guess), quotient), ops.Constant(c, 3.0))
    return ops.Add(step, ops.Constant(c, np.int32(1))), better, target


builder = xc.XlaBuilder("cube_roots")
target = ops.Parameter(builder, 0, xc.shape_from_pyval(targets))
start = ops.Tuple(builder, [ops.Constant(builder, np.int32(0)), target, target])
end = ops.While(*loop(goes_on, newton, state_shape), start)
ops.Tuple(builder, [ops.GetTupleElement(end, 1), ops.GetTupleElement(end, 0)])
roots, steps = compiled(builder.build())(targets)
print("cube roots", roots.round(9), "after", steps, "steps")

# %% [markdown]
# ## Choices
#
# `Select` chooses element by element, after both sides have been calculated. `Conditional` runs one of several
# computations.

# %%
branches = []
for name, function in (("negate", ops.Neg), ("square", lambda v: ops.Mul(v, v)), ("keep", lambda v: ops.Add(v, v))):
    inner = xc.XlaBuilder(name)
    function(ops.Parameter(inner, 0, xc.Shape("f32[3]")))
    branches.append(inner.build())
builder = xc.XlaBuilder("choose")
which = ops.Parameter(builder, 0, xc.Shape("s32[]"))
vector = ops.Constant(builder, np.float32([1, 2, 3]))
ops.Conditional(which, branches, [vector] * 3)
choose = compiled(builder.build())
print("branches:", [choose(np.int32(i))[0].tolist() for i in range(3)])

# %% [markdown]
# ## Memory
#
# Arguments and results are buffers of a device, and stay there from one run to the next. An argument whose memory the
# result takes is donated: its buffer is gone after the call.

# %%
builder = xc.XlaBuilder("decay")
ops.Mul(ops.Parameter(builder, 0, xc.Shape("f32[4]")), ops.Constant(builder, np.float32(0.5)))
builder.setup_alias((), 0, ())
decay = client.compile(xc._xla.mlir.xla_computation_to_mlir_module(builder.build()))
first = state = client.buffer_from_pyval(np.float32([16, 8, 4, 2]))
for _ in range(3):
    (state,) = decay.execute([state])
print("after three runs:", np.asarray(state), "- the first buffer is gone:", first.is_deleted())

# %% [markdown]
# ## What is compiled
#
# An executable tells what a run costs, and a module of HLO what it consists of.

# %%
print("operations in a product of 64 by 64:", end=" ")
builder = xc.XlaBuilder("product")
square = xc.Shape("f32[64,64]")
ops.Dot(ops.Parameter(builder, 0, square), ops.Parameter(builder, 1, square))
module = builder.build().as_hlo_module()
print(int(xc._xla.hlo_module_cost_analysis(client, module)["flops"]))
