"""Four replicas run one program on their own data and meet in collectives.

python examples/replicas.py
"""

import numpy as np

import xlakit as xla

REPLICAS = 4

builder = xla.XlaBuilder("mean_over_replicas")
x = xla.parameter(builder, 0, xla.make_shape(xla.F32, (3,)), "x")
mean = xla.all_reduce(x, xla.add) / float(REPLICAS)

# Each replica passes its difference to the next one, in a ring.
ring = [(i, (i + 1) % REPLICAS) for i in range(REPLICAS)]
difference = xla.collective_permute(x - mean, ring)
xla.tuple_(xla.replica_id(builder), mean, difference)

executable = xla.compile(builder.build(), backend="interpreter", num_replicas=REPLICAS)
data = np.arange(12, dtype=np.float32).reshape(REPLICAS, 3) ** 2
for replica, mean_of_all, from_neighbor in executable.execute_replicated([[row] for row in data]):
    print(f"replica {replica}: mean {mean_of_all}, from its neighbor {from_neighbor}")
