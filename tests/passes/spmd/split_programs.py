"""Modules that say how they are split over partitions, and what their programs of one partition give."""

from collections import Counter

import numpy as np

import xlakit as xla
from fuzz.programs.shardings import cut, join
from xlakit.passes.analysis.traffic import traffic
from xlakit.passes.spmd import split_over

COLLECTIVES = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "collective-broadcast", "reduce-scatter")
ADD = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }"
ROWS, COLUMNS = "{devices=[4,1]<=[4]}", "{devices=[1,4]<=[4]}"
BOTH, WHOLE = "{devices=[2,2]<=[4]}", "{replicated}"
X_ROWS = "{devices=[2,1,2]<=[4] last_tile_dim_replicate}"
Y_COLUMNS = "{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}"


def module_of(body, *computations, partitions=4):
    text = "\n".join([f"HloModule m, num_partitions={partitions}", ADD, *computations, f"ENTRY main {{ {body} }}"])
    return xla.HloModule.from_text(text)


def sends(split):
    """What a device sends, in elements of 4 bytes."""
    return sum(t.total for t in traffic(split)) / 4


def collectives(module):
    found = Counter(i.opcode for c in module.computations for i in c.instructions)
    return {name: found[name] for name in COLLECTIVES if found[name]}


def run_split(module, *arguments, backend="interpreter"):
    """What the partitions give, put together, and the program of one."""
    split = split_over(module, module.num_partitions)
    split.verify()
    count = split.num_partitions
    shards = [cut(a, s, count) for a, s in zip(arguments, split.spmd_parameters_shardings, strict=True)]
    executable = xla.compile(split, backend=backend)
    results = executable.execute_replicated([[s[p] for s in shards] for p in range(count)])
    shape = module.entry.root.shape
    if not shape.is_tuple:
        return join([np.asarray(r) for r in results], split.spmd_output_sharding, shape.dimensions), split
    said = split.spmd_output_sharding.elements
    parts = [[np.asarray(r[n]) for r in results] for n in range(len(said))]
    dims = [s.dimensions for s in shape.tuple_shapes]
    return tuple(join(p, s, d) for p, s, d in zip(parts, said, dims, strict=True)), split


def check(body, expected, *computations, sizes=None, partitions=4):
    """The split program gives what the whole one does, with these collectives; None: with any."""
    module = module_of(body, *computations, partitions=partitions)
    rng = np.random.default_rng(3)
    arguments = [
        rng.integers(0, 5, p.shape.dimensions).astype(p.shape.element_type.dtype) for p in module.entry.parameters
    ]
    result, split = run_split(module, *arguments)
    whole = xla.compile(module.replace(num_partitions=1), backend="interpreter")(*arguments)
    for actual, wanted in zip(*(v if isinstance(v, tuple) else (v,) for v in (result, whole)), strict=True):
        np.testing.assert_array_equal(actual, wanted)
    assert expected is None or collectives(split) == expected
    if sizes is not None:
        opcode, dims = sizes
        assert dims in [i.shape.dimensions for c in split.computations for i in c.instructions if i.opcode == opcode]
    return split


MESH = 'frontend_attributes={xla.sdy.meshes={m = #sdy.mesh<["a"=2, "b"=2]>}}'


def with_mesh(text, *computations):
    return xla.HloModule.from_text("\n".join([f"HloModule m, num_partitions=4, {MESH}", ADD, *computations, text]))


def boundary(name, shape, operand, target, shardings, axes):
    key = "in" if target.startswith("Global") else "out"
    said = ", ".join(f"<@m, {s}>" for s in shardings).replace('"', '\\"')
    manual = axes.replace('"', '\\"')
    return (
        f'{name} = {shape} custom-call({operand}), custom_call_target="xla.sdy.{target}", '
        f'custom_call_has_side_effect=true, frontend_attributes={{xla.sdy.{key}_shardings="#sdy.sharding_per_value<'
        f'[{said}]>",xla.sdy.manual_axes="#sdy<manual_axes{{{manual}}}>"}}'
    )
