"""A small compiler of derivatives: Python functions are recorded, differentiated in reverse, and compiled with XLA.

python examples/xla_client/derivatives.py
"""

import numpy as np

from xlakit.compat import xla_client as xc

ops = xc.ops


class Node:
    """A value of the recorded function: the name of its operation, and the values that it is made of."""

    def __init__(self, kind, *parts, value=None):
        self.kind, self.parts, self.value = kind, parts, value

    def __add__(self, other):
        return Node("Add", self, node(other))

    def __mul__(self, other):
        return Node("Mul", self, node(other))

    def __sub__(self, other):
        return Node("Sub", self, node(other))

    def __neg__(self):
        return Node("Neg", self)

    __radd__, __rmul__ = __add__, __mul__


def node(value):
    return value if isinstance(value, Node) else Node("Constant", value=np.float64(value))


def sin(x):
    return Node("Sin", x)


def cos(x):
    return Node("Cos", x)


def exp(x):
    return Node("Exp", x)


# For each operation, what its operands' derivatives are, given that of the result.
RULES = {
    "Add": lambda made, d: (d, d),
    "Sub": lambda made, d: (d, -d),
    "Mul": lambda made, d: (d * made.parts[1], d * made.parts[0]),
    "Neg": lambda made, d: (-d,),
    "Sin": lambda made, d: (d * cos(made.parts[0]),),
    "Cos": lambda made, d: (-(d * sin(made.parts[0])),),
    "Exp": lambda made, d: (d * made,),
}


def in_order(root):
    """The values that a value needs, each after its parts."""
    found = {}

    def visit(made):
        if made not in found:
            for part in made.parts:
                visit(part)
            found[made] = None

    visit(root)
    return list(found)


def gradient(result, variables):
    derivatives = {result: node(1)}
    for made in reversed(in_order(result)):
        if made in derivatives and made.kind in RULES:
            for part, derivative in zip(made.parts, RULES[made.kind](made, derivatives[made]), strict=True):
                before = derivatives.get(part)
                derivatives[part] = derivative if before is None else before + derivative
    return [derivatives.get(variable, node(0)) for variable in variables]


def compiled(client, variables, results, name):
    """An executable of scalars."""
    builder, made = xc.XlaBuilder(name), {}
    for number, variable in enumerate(variables):
        made[variable] = ops.Parameter(builder, number, xc.Shape("f64[]"))
    for result in results:
        for value in in_order(result):
            if value.kind == "Constant":
                made.setdefault(value, ops.Constant(builder, value.value))
            elif value not in made:
                made[value] = getattr(ops, value.kind)(*[made[part] for part in value.parts])
    computation = builder.build(ops.Tuple(builder, [made[result] for result in results]))
    return client.compile(xc._xla.mlir.xla_computation_to_mlir_module(computation))


def main():
    client = xc.make_cpu_client()
    x, y = Node("Variable"), Node("Variable")
    value = sin(x * y) + exp(-(x * x)) * y
    first = gradient(value, [x, y])
    second = gradient(first[0], [x, y])
    executable = compiled(client, [x, y], [value, *first, *second], "derivatives")
    point = 0.7, -1.3
    results = executable.execute([client.buffer_from_pyval(np.float64(v)) for v in point])
    for name, result in zip(("f", "df/dx", "df/dy", "d2f/dx2", "d2f/dxdy"), results, strict=True):
        print(f"{name}({point[0]}, {point[1]}) = {float(np.asarray(result)):.6f}")


main()
