"""PyTreeDef: the structure of a tree without its leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, Self

from xlakit.compat.xla_client.binding import bound, incompatible
from xlakit.compat.xla_client.errors import with_status
from xlakit.compat.xla_client.pytree.nodes import Kind, Node, Registration, taken_apart
from xlakit.errors import FormatError
from xlakit.formats.hlo_proto import schema


class Registry(Protocol):
    """What structures ask of a registry."""

    def registration(self, kind: type) -> tuple[Kind, Registration | None] | None:
        """The kind of containers of a type and how it is registered; None where it is not."""
        ...


class PyTreeDef:
    """The structure of a tree: it makes trees of leaves, compares, hashes and pickles."""

    __slots__ = ("nodes", "registry")

    registry: Any
    # In post-order.
    nodes: tuple[Node, ...]

    def __init__(self) -> None:
        raise TypeError("PyTreeDef: no constructor defined!")

    @staticmethod
    def of(registry: Registry, nodes: tuple[Node, ...]) -> PyTreeDef:
        """The structure of nodes in post-order."""
        made = PyTreeDef.__new__(PyTreeDef)
        made.registry, made.nodes = registry, nodes
        return made

    @property
    def num_leaves(self) -> int:
        """How many leaves trees have."""
        return self.nodes[-1].num_leaves

    @property
    def num_nodes(self) -> int:
        """How many leaves and containers trees have."""
        return len(self.nodes)

    def children(self) -> list[PyTreeDef]:
        """The structures of the children."""
        found: list[PyTreeDef] = []
        end = len(self.nodes) - 1
        for _ in range(self.nodes[-1].arity):
            start = end - self.nodes[end - 1].num_nodes
            found.append(PyTreeDef.of(self.registry, self.nodes[start:end]))
            end = start
        return found[::-1]

    def node_data(self) -> tuple[Any, Any] | None:
        """The type of the container and its data; None for a leaf."""
        root = self.nodes[-1]
        if root.kind is Kind.LEAF:
            return None
        return root.type, None if root.kind is Kind.NAMEDTUPLE else root.data

    @staticmethod
    def make_from_node_data_and_children(
        registry: Any, node_data: tuple[Any, Any] | None, children: Iterable[PyTreeDef]
    ) -> PyTreeDef:
        """The structure of a container of a type with some data, and of children; of a leaf for None."""
        if node_data is None:
            return PyTreeDef.of(registry, (Node(Kind.LEAF),))
        given, (kind, data) = list(children), node_data
        found = registry.registration(kind)
        if found is None:
            raise RuntimeError(f"{kind!r} is not a registered type")
        nodes = [node for child in given for node in child.nodes]
        kept = kind if found[0] is Kind.NAMEDTUPLE else list(data) if kind is dict else data
        return PyTreeDef.of(registry, (*nodes, Node.over(nodes, found[0], len(given), kept, found[1])))

    # -- trees of leaves ---------------------------------------------------------------------------

    @bound
    def unflatten(self, leaves: Iterable[Any], /) -> Any:
        """The tree of leaves. Raises ValueError for too many or too few of them."""
        given = iter(leaves)
        tree = self._folded(given, lambda node, children: node.made(children))
        for _ in given:
            raise ValueError(f"more leaves than the {self.num_leaves} of this structure")
        return tree

    def walk(self, f_node: Callable[[Any, Any], Any], f_leaf: Callable[[Any], Any], leaves: Iterable[Any]) -> Any:
        """A fold of the tree: ``f_leaf(leaf)`` of leaves, and ``f_node(children, data)`` of containers."""
        if not callable(f_leaf) or not callable(f_node):
            raise incompatible("walk", "f_node and f_leaf are functions")
        given = iter(leaves)
        made = self._folded(map(f_leaf, given), lambda node, children: f_node(tuple(children), node.data))
        for _ in given:
            raise ValueError(f"more leaves than the {self.num_leaves} of this structure")
        return made

    def _folded(self, leaves: Iterable[Any], combine: Callable[[Node, Sequence[Any]], Any]) -> Any:
        stack: list[Any] = []
        source, taken = iter(leaves), 0
        for node in self.nodes:
            if node.kind is Kind.LEAF:
                for leaf in source:
                    stack.append(leaf)
                    break
                else:
                    raise ValueError(f"{taken} leaves for the {self.num_leaves} of this structure")
                taken += 1
                continue
            split = len(stack) - node.arity
            children = stack[split:]
            del stack[split:]
            stack.append(combine(node, children))
        return stack.pop()

    @bound
    def flatten_up_to(self, tree: object) -> list[Any]:
        """The subtrees of a tree at this structure's leaves. Raises ValueError for a tree of another structure."""
        found: list[Any] = []
        pending: list[Any] = [tree]
        for node in reversed(self.nodes):
            value = pending.pop()
            if node.kind is Kind.LEAF:
                found.append(value)
            else:
                pending += _children_like(node, value)
        return found[::-1]

    def from_iterable_tree(self, tree: Any, /) -> Any:
        """The tree of this structure with the leaves of nested iterables."""
        root = self.nodes[-1]
        if root.kind is Kind.LEAF:
            return tree
        given, children = list(tree), self.children()
        if len(given) != len(children):
            raise ValueError(f"{len(given)} children for a node of {len(children)}")
        return root.made([c.from_iterable_tree(g) for c, g in zip(children, given, strict=True)])

    @bound
    def compose(self, inner: PyTreeDef, /) -> PyTreeDef:
        """The structure whose leaves are trees of another one."""
        nodes: list[Node] = []
        for node in self.nodes:
            if node.kind is Kind.LEAF:
                nodes += inner.nodes
            else:
                nodes.append(Node.over(nodes, node.kind, node.arity, node.data, node.custom))
        return PyTreeDef.of(self.registry, tuple(nodes))

    # -- as a value --------------------------------------------------------------------------------

    @bound
    def __eq__(self, other: PyTreeDef, /) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]
        return len(self.nodes) == len(other.nodes) and all(map(Node.is_like, self.nodes, other.nodes))

    def __hash__(self) -> int:
        return hash(tuple(node.identity for node in self.nodes))

    def __repr__(self) -> str:
        return f"PyTreeDef({self._folded(['*'] * self.num_leaves, lambda node, children: node.shown(children))})"

    def __reduce__(self) -> Any:
        nodes = [(node.kind, node.arity, node.data, node.custom and node.type) for node in self.nodes]
        return _restored, (self.registry, nodes)

    def serialize_using_proto(self) -> bytes:
        """A PyTreeDefProto. Raises ValueError for containers but None, tuples, lists and dicts with texts as keys."""
        message, strings = schema.new("PyTreeDefProto"), dict[str, int]()
        for node in self.nodes:
            if node.kind.value > Kind.DICT.value:
                raise ValueError(
                    "User-defined nodes are not supported when serializing pytrees as protocol buffers. Convert them "
                    "to other types, or use pickle."
                )
            written = message.nodes.add()
            written.arity, written.type = node.arity, node.kind.value
            for key in node.data if node.kind is Kind.DICT else ():
                if not isinstance(key, str):
                    raise ValueError(f"a PyTreeDefProto has keys that are strings, not {key!r}")
                written.dict_node.str_id.append(strings.setdefault(key, len(strings)))
        message.interned_strings.extend(strings)
        return message.SerializeToString()

    @staticmethod
    @with_status
    def deserialize_using_proto(registry: Any, data: bytes) -> PyTreeDef:
        """The structure of a PyTreeDefProto. Raises XlaRuntimeError for other bytes."""
        try:
            message = schema.parse("PyTreeDefProto", data)
            strings, nodes = list(message.interned_strings), list[Node]()
            for read in message.nodes:
                kind = Kind(read.type)
                keys = [strings[i] for i in read.dict_node.str_id] if kind is Kind.DICT else None
                nodes.append(Node(kind) if kind is Kind.LEAF else Node.over(nodes, kind, read.arity, keys))
        except (ValueError, IndexError, FormatError) as error:
            raise FormatError("these bytes are no PyTreeDefProto", hint="give the bytes of a structure") from error
        if not nodes or nodes[-1].num_nodes != len(nodes):
            raise FormatError("these bytes are no PyTreeDefProto", hint="give the bytes of one structure")
        return PyTreeDef.of(registry, tuple(nodes))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self


def _restored(registry: Any, nodes: Sequence[tuple[Kind, int, Any, Any]]) -> PyTreeDef:
    """The structure that was pickled. Raises ValueError where the registry does not have a type of it."""
    made: list[Node] = []
    for kind, arity, data, custom in nodes:
        found = None if custom is None else registry.registration(custom)
        if custom is not None and found is None:
            raise ValueError(f"Unrecognized custom type {custom!r} in a pickled PyTreeDef; register it")
        made.append(
            Node(kind) if kind is Kind.LEAF else Node.over(made, kind, arity, data, None if found is None else found[1])
        )
    return PyTreeDef.of(registry, tuple(made))


def _children_like(node: Node, value: Any) -> list[Any]:
    """The children of a value that is a container as a node says. Raises ValueError for another one."""
    match node.kind:
        case Kind.NONE:
            if value is not None:
                raise ValueError(f"the structure has None here, the tree {value!r}")
            return []
        case Kind.TUPLE | Kind.LIST:
            name = "tuple" if node.kind is Kind.TUPLE else "list"
            if type(value) is not node.type:
                raise ValueError(f"the structure has a {name} here, the tree {value!r}")
            if len(value) != node.arity:
                raise ValueError(f"a {name} of {len(value)} elements, where the structure has {node.arity}: {value!r}")
            return list(value)
        case Kind.DICT:
            if type(value) is not dict:
                raise ValueError(f"the structure has a dict here, the tree {value!r}")
            if len(value) != node.arity or any(key not in value for key in node.data):
                raise ValueError(f"a dict with other keys than the {node.data!r} of the structure: {value!r}")
            return [value[key] for key in node.data]
        case Kind.NAMEDTUPLE:
            return _of_named_tuple(node, value)
        case _:
            return _of_custom(node, value)


def _of_named_tuple(node: Node, value: Any) -> list[Any]:
    if not isinstance(value, tuple) or not hasattr(value, "_fields"):  # pyright: ignore[reportUnknownArgumentType]
        raise ValueError(f"the structure has a named tuple here, the tree {value!r}")
    children: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType]
    if len(children) != node.arity:
        raise ValueError(f"a named tuple of {len(children)} elements, where the structure has {node.arity}: {value!r}")
    if type(value) is not node.data:  # pyright: ignore[reportUnknownArgumentType]
        raise ValueError(f"a named tuple of another type than the structure's {node.data!r}: {value!r}")
    return children


def _of_custom(node: Node, value: Any) -> list[Any]:
    what = "dataclass" if node.kind is Kind.DATACLASS else "custom node"
    if type(value) is not node.type:
        raise ValueError(f"a {what} of another type than the structure's {node.type!r}: {value!r}")
    given, data = taken_apart(value, node.kind, node.custom)
    children = list(given)
    if len(children) != node.arity:
        raise ValueError(f"a {what} of {len(children)} children, where the structure has {node.arity}: {value!r}")
    if not data == node.data:
        raise ValueError(f"a {what} with data {data!r}, where the structure has {node.data!r}: {value!r}")
    return children
