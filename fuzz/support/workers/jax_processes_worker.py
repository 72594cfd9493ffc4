"""One of several processes of JAX that says what it sees of arrays that span them; see :mod:`fuzz.jax_processes`."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

_CHECKS: dict[str, Callable[[Any, Path], Any]] = {}
_TYPES = ("float32", "bfloat16", "int8", "uint16", "bool", "complex64", "float8_e4m3fn")


def _check(function: Callable[[Any, Path], Any]) -> Callable[[Any, Path], Any]:
    _CHECKS[function.__name__.strip("_")] = function
    return function


def _mesh() -> Any:
    import jax
    from jax.sharding import Mesh

    devices = np.array(jax.devices())
    return Mesh(devices.reshape(2, -1), ("x", "y"))


def _sharded(*spec: Any) -> Any:
    from jax.sharding import NamedSharding, PartitionSpec

    return NamedSharding(_mesh(), PartitionSpec(*spec))


def _data(shape: tuple[int, ...], name: str = "float32") -> Any:
    import jax.numpy as jnp

    values = np.random.default_rng(len(shape)).integers(-8, 8, shape)
    return np.asarray(values, jnp.dtype(name))


def _seen(value: Any) -> str:
    """What this process has of a value: type, shape, and a digest of the bytes of each part, by its place.

    Devices are named by their place among all: jaxlib's numbers of them have gaps.
    """
    import jax

    if not isinstance(value, jax.Array) or value.is_fully_replicated:
        array = np.asarray(value)
        return f"{array.dtype}{array.shape} {_digest(array)}"
    places = {device: place for place, device in enumerate(jax.devices())}
    parts = sorted((str(s.index), places[s.device], _digest(np.asarray(s.data))) for s in value.addressable_shards)
    return f"{value.dtype}{value.shape} {parts}"


def _digest(array: Any) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:12]


@_check
def _process_allgather(jax: Any, folder: Path) -> Any:
    from jax.experimental import multihost_utils

    rank = jax.process_index()
    found = {}
    for name in _TYPES:
        local = _data((3, 4), name) if name == "bool" else (_data((3, 4)) + rank).astype(_data((1,), name).dtype)
        found[name] = [_seen(multihost_utils.process_allgather(local, tiled=tiled)) for tiled in (False, True)]
    tree = {"a": np.float32(rank), "b": (np.arange(3) + rank, np.zeros((0, 2)))}
    found["tree"] = [_seen(leaf) for leaf in jax.tree.leaves(multihost_utils.process_allgather(tree))]
    spanning = jax.device_put(_data((8, 8)), _sharded("x", "y"))
    found["spanning"] = _seen(multihost_utils.process_allgather(spanning, tiled=True))
    return found


@_check
def _broadcast_one_to_all(jax: Any, folder: Path) -> Any:
    from jax.experimental import multihost_utils

    rank, last = jax.process_index(), jax.process_count() - 1
    tree = {"a": np.float32(rank + 0.5), "b": np.arange(5) * (rank + 1), "c": np.array(rank == 0)}
    first = multihost_utils.broadcast_one_to_all(tree)
    other = multihost_utils.broadcast_one_to_all(tree, is_source=rank == last)
    return [_seen(leaf) for leaf in jax.tree.leaves((first, other))]


@_check
def _assert_equal(jax: Any, folder: Path) -> Any:
    from jax.experimental import multihost_utils

    multihost_utils.sync_global_devices("before")
    multihost_utils.assert_equal({"a": np.arange(3), "b": 1.5}, "they differ")
    try:
        multihost_utils.assert_equal(np.arange(3) + jax.process_index(), "they differ, as they should")
    except AssertionError as error:
        said = "they differ, as they should" in str(error)
    else:
        said = jax.process_index() == 0
    multihost_utils.sync_global_devices("after")
    return said


@_check
def _from_process_local_data(jax: Any, folder: Path) -> Any:
    rank, count = jax.process_index(), jax.process_count()
    found = []
    for name in _TYPES:
        rows = _data((8, 8), name)
        own = rows[rank * 8 // count : (rank + 1) * 8 // count]
        found.append(_seen(jax.make_array_from_process_local_data(_sharded(("x", "y")), own)))
        found.append(_seen(jax.make_array_from_process_local_data(_sharded(("x", "y")), own, (8, 8))))
        found.append(_seen(jax.make_array_from_process_local_data(_sharded(), rows, (8, 8))))
    spec = jax.sharding.PartitionSpec(("x", "y"))
    from jax.experimental import multihost_utils

    spread = multihost_utils.host_local_array_to_global_array(_data((4, 3)) + rank, _mesh(), spec)
    back = multihost_utils.global_array_to_host_local_array(spread * 2, _mesh(), spec)
    return [*found, _seen(spread), _seen(back)]


@_check
def _from_callback(jax: Any, folder: Path) -> Any:
    found = []
    for spec in (("x", "y"), ("y", "x"), (None, "x"), (("x", "y"),), ()):
        for name in _TYPES:
            whole = _data((16, 8), name)
            made = jax.make_array_from_callback(whole.shape, _sharded(*spec), lambda index, whole=whole: whole[index])
            found.append(_seen(made))
    keys = jax.random.split(jax.random.key(7), 8)
    placed = jax.device_put(keys, _sharded(("x", "y")))
    found.append(_seen(jax.random.key_data(jax.jit(lambda k: jax.vmap(jax.random.fold_in, (0, None))(k, 3))(placed))))
    return found


@_check
def _programs(jax: Any, folder: Path) -> Any:
    """Integers, so that the order of sums does not matter; whole, as the platforms split results differently."""
    from jax.experimental import multihost_utils

    jnp, lax = jax.numpy, jax.lax
    x = jax.device_put(_data((16, 8), "int32"), _sharded("x", "y"))
    w = jax.device_put(_data((8, 4), "int32"), _sharded("y"))
    functions = {
        "product": lambda x, w: x @ w,
        "sorted": lambda x, w: jnp.sort(x, axis=0),
        "cumulative": lambda x, w: jnp.cumsum(x, axis=1),
        "rolled": lambda x, w: jnp.roll(x, 3, 0) - jnp.roll(x, 1, 1),
        "taken": lambda x, w: x[w[:, 0] % 16],
        "loop": lambda x, w: lax.fori_loop(0, 3, lambda i, c: c + jnp.sum(c, 0, keepdims=True) % 7, x),
        "argmax": lambda x, w: jnp.argmax(x, 0),
        "random": lambda x, w: jax.random.bits(jax.random.key(3), (16, 8)) + x.astype("uint32"),
    }
    results = {name: jax.jit(f)(x, w) for name, f in functions.items()}
    found = {name: _seen(multihost_utils.process_allgather(x, tiled=True)) for name, x in results.items()}
    found["donated"] = _seen(jax.jit(lambda x: x * 2 + 1, donate_argnums=0)(x + 0))
    found["resharded"] = _seen(jax.jit(lambda x: x, out_shardings=_sharded("y", "x"))(x))
    found["replicated"] = _seen(jax.jit(lambda x: x + 1, out_shardings=_sharded())(x))
    return found


@_check
def _checkpoints(jax: Any, folder: Path) -> Any:
    """Orbax writes what processes have, and reads it in another sharding."""
    if importlib.util.find_spec("orbax") is None:
        return "orbax is not installed"
    ocp = importlib.import_module("orbax.checkpoint")
    x = jax.device_put(_data((16, 8)), _sharded("x", "y"))
    tree = {
        "w": x,
        "narrow": jax.device_put(_data((8, 4), "bfloat16"), _sharded(("x", "y"))),
        "whole": jax.device_put(_data((5,), "int8"), _sharded()),
        "step": jax.device_put(np.int32(7), _sharded()),
    }
    path = folder / "checkpoint"
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, tree)
        checkpointer.wait_until_finished()
        wanted = {
            "w": jax.ShapeDtypeStruct((16, 8), x.dtype, sharding=_sharded("y", "x")),
            "narrow": jax.ShapeDtypeStruct((8, 4), tree["narrow"].dtype, sharding=_sharded(None, "x")),
            "whole": jax.ShapeDtypeStruct((5,), "int8", sharding=_sharded()),
            "step": jax.ShapeDtypeStruct((), "int32", sharding=_sharded()),
        }
        found = checkpointer.restore(path, wanted)
    managed = folder / "managed"
    with ocp.CheckpointManager(managed, options=ocp.CheckpointManagerOptions(max_to_keep=2)) as manager:
        for step in range(3):
            manager.save(step, args=ocp.args.StandardSave({"w": x + step}))
        manager.wait_until_finished()
        steps = sorted(manager.all_steps())
        last = manager.restore(2, args=ocp.args.StandardRestore({"w": wanted["w"]}))
    return {name: _seen(value) for name, value in found.items()}, steps, _seen(last["w"])


def main(rank: int, count: int, coordinator: str, folder: Path) -> None:
    """Say what each check has found."""
    if os.environ.get("XLAKIT_AS"):
        from xlakit.jax import initialize

        initialize()
    import jax

    jax.distributed.initialize(coordinator, num_processes=count, process_id=rank)
    for name, check in _CHECKS.items():
        try:
            found = check(jax, folder)
        except Exception as error:  # it is a finding
            found = f"{type(error).__name__}: {str(error)[:500]!r}"
        print(f"found {name}: {found}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
