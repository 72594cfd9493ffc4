"""PyTreeRegistry: which types are containers, and trees taken apart."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from xlakit.compat.xla_client.binding import bound, incompatible
from xlakit.compat.xla_client.pytree.nodes import Kind, Node, Registration, taken_apart, with_keys
from xlakit.compat.xla_client.pytree.treedef import PyTreeDef

_LEAF = Node(Kind.LEAF)


class PyTreeRegistry:
    """The types whose objects are containers: built-in ones, named tuples, and those that are registered."""

    @bound
    def __init__(
        self,
        enable_none: bool = True,
        enable_tuple: bool = True,
        enable_namedtuple: bool = True,
        enable_list: bool = True,
        enable_dict: bool = True,
    ) -> None:
        enabled = [(enable_none, Kind.NONE, type(None)), (enable_tuple, Kind.TUPLE, tuple)]
        enabled += [(enable_list, Kind.LIST, list), (enable_dict, Kind.DICT, dict)]
        self._types: dict[Any, tuple[Kind, Registration | None]] = {t: (kind, None) for on, kind, t in enabled if on}
        self._has_named_tuples = enable_namedtuple

    def node_of(self, value: object) -> tuple[Kind, Registration | None] | None:
        """The kind of a container and how its type is registered; None for a leaf."""
        found = self._types.get(type(value))
        if found is None and self._has_named_tuples and isinstance(value, tuple) and hasattr(value, "_fields"):
            return Kind.NAMEDTUPLE, None
        return found

    def registration(self, kind: type) -> tuple[Kind, Registration | None] | None:
        """The kind of containers of a type and how it is registered; None where it is not."""
        if self._has_named_tuples and issubclass(kind, tuple) and hasattr(kind, "_fields"):
            return Kind.NAMEDTUPLE, None
        return self._types.get(kind)

    def register_node(
        self,
        type: Any,
        to_iterable: Callable[[Any], Any],
        from_iterable: Callable[[Any, Any], Any],
        to_iterable_with_keys: Callable[[Any], Any] | None = None,
    ) -> None:
        """Register a type: functions that take its objects apart and make them again.

        to_iterable: gives the children of an object, and data that is kept with the structure.
        from_iterable: makes an object of this data and a tuple of children.
        to_iterable_with_keys: as to_iterable, with pairs of keys and children, for paths.

        Raises ValueError for a type that is registered.
        """
        if not callable(to_iterable) or not callable(from_iterable):
            raise incompatible("register_node", "to_iterable and from_iterable are functions")
        made = Registration(type, to_iterable, from_iterable, to_iterable_with_keys)
        self._register(made, Kind.CUSTOM, "custom PyTreeDef")

    def register_dataclass_node(self, type: Any, data_fields: Sequence[str], meta_fields: Sequence[str], /) -> None:
        """Register a type of which some fields are children, and others data that is kept with the structure.

        Raises ValueError for a type that is registered.
        """
        made = Registration(type, fields=tuple(data_fields), metas=tuple(meta_fields))
        self._register(made, Kind.DATACLASS, "custom dataclass PyTreeDef")

    def _register(self, made: Registration, kind: Kind, what: str) -> None:
        if made.type in self._types:
            raise ValueError(f"{made.type!r} is registered already ({what})")
        self._types[made.type] = kind, made

    @bound
    def flatten(self, tree: object, leaf_predicate: Callable[[Any], Any] | None = None) -> tuple[list[Any], PyTreeDef]:
        """The leaves of a tree in order, and its structure.

        leaf_predicate: a function that says whether an object is a leaf, container or not.
        """
        leaves, nodes = list[Any](), list[Node]()
        # Nodes wait for those of their children; a tree may be deeper than Python's stack.
        pending: list[Any] = [tree]
        while pending:
            value = pending.pop()
            if isinstance(value, _Waiting):
                nodes.append(Node.over(nodes, *value))
                continue
            found = None if leaf_predicate is not None and leaf_predicate(value) else self.node_of(value)
            if found is None:
                leaves.append(value)
                nodes.append(_LEAF)
                continue
            given, data = taken_apart(value, *found)
            children = list(given)
            pending.append(_Waiting((found[0], len(children), data, found[1])))
            pending += reversed(children)
        return leaves, PyTreeDef.of(self, tuple(nodes))

    @bound
    def flatten_with_path(
        self, tree: object, leaf_predicate: Callable[[Any], Any] | None = None
    ) -> tuple[list[tuple[tuple[Any, ...], Any]], PyTreeDef]:
        """As :meth:`flatten`, of pairs of the path to a leaf, a tuple of keys, and the leaf."""
        leaves, nodes = list[tuple[tuple[Any, ...], Any]](), list[Node]()
        pending: list[Any] = [((), tree)]
        while pending:
            taken = pending.pop()
            if isinstance(taken, _Waiting):
                nodes.append(Node.over(nodes, *taken))
                continue
            path, value = taken
            found = None if leaf_predicate is not None and leaf_predicate(value) else self.node_of(value)
            if found is None:
                leaves.append((path, value))
                nodes.append(_LEAF)
                continue
            children, data = with_keys(value, *found)
            pending.append(_Waiting((found[0], len(children), data, found[1])))
            pending += [((*path, key), child) for key, child in reversed(children)]
        return leaves, PyTreeDef.of(self, tuple(nodes))

    @bound
    def flatten_one_level(self, tree: object) -> Any:
        """The children of a container and its data; None for a leaf."""
        found = self.node_of(tree)
        if found is None:
            return None
        children, data = taken_apart(tree, *found)
        return (tuple(children), tuple(data)) if found[0] is Kind.DICT else (children, data)

    @bound
    def flatten_one_level_with_keys(self, tree: object) -> Any:
        """The children of a container with their keys, and its data; None for a leaf."""
        found = self.node_of(tree)
        if found is None:
            return None
        pairs, data = with_keys(tree, *found)
        data = tuple(data) if found[0] is Kind.DICT else data
        return (tuple(pairs) if found[0].value <= Kind.DICT.value else pairs), data

    def __reduce__(self) -> Any:
        if self is not default_registry():
            raise TypeError("only the default registry of pytrees can be pickled")
        return default_registry, ()


class _Waiting(tuple[Any, ...]):
    """The arguments of ``Node.over``, after its children's."""

    __slots__ = ()


@functools.cache
def default_registry() -> PyTreeRegistry:
    """The registry of the process."""
    return PyTreeRegistry()
