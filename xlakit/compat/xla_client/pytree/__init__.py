"""Trees of containers, flattened into leaves and a structure: jaxlib's ``xla_extension.pytree``."""

from __future__ import annotations

import builtins
from collections.abc import Iterable

from xlakit.compat.xla_client.binding import bound, incompatible
from xlakit.compat.xla_client.pytree.keys import (
    DictKey as DictKey,
    FlattenedIndexKey as FlattenedIndexKey,
    GetAttrKey as GetAttrKey,
    SequenceKey as SequenceKey,
)
from xlakit.compat.xla_client.pytree.nodes import Kind, Node
from xlakit.compat.xla_client.pytree.registry import (
    PyTreeRegistry as PyTreeRegistry,
    default_registry as default_registry,
)
from xlakit.compat.xla_client.pytree.treedef import PyTreeDef as PyTreeDef

# jaxlib 0.6.0's number.
version = 3

_default_registry = default_registry()


@bound
def all_leaves(registry: PyTreeRegistry, values: Iterable[object], /) -> bool:
    """Whether no value is a container of the registry."""
    return all(registry.node_of(value) is None for value in values)


@bound
def tuple(registry: PyTreeRegistry, treedefs: list, /) -> PyTreeDef:  # pyright: ignore
    """The structure of a tuple of trees of these structures. Raises ValueError for those of other registries."""
    nodes: list[Node] = []
    for treedef in treedefs:
        if not isinstance(treedef, PyTreeDef):
            raise incompatible("tuple", f"a {type(treedef).__name__} is no PyTreeDef")
        if treedef.registry is not registry:
            raise ValueError("the structures of a tuple are of different registries")
        nodes += treedef.nodes
    nodes.append(Node.over(nodes, Kind.TUPLE, len(treedefs)))
    return PyTreeDef.of(registry, builtins.tuple(nodes))
