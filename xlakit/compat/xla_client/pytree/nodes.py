"""The nodes of trees: how containers are taken apart and made again."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from xlakit.compat.xla_client.pytree.keys import DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey
from xlakit.dataclass import dataclass


class Kind(enum.Enum):
    """The kinds of nodes, with the numbers of ``PyTreeNodeType`` where its messages have them."""

    LEAF = 1
    LIST = 2
    NONE = 3
    TUPLE = 4
    DICT = 5
    NAMEDTUPLE = 6
    CUSTOM = 7
    DATACLASS = 8


@dataclass(frozen=True, slots=True)
class Registration:
    """How containers of a type are taken apart and made again.

    ``flatten`` gives children and auxiliary data, ``with_keys`` pairs of keys and children, and ``unflatten`` takes
    the data and the children. Of a dataclass ``fields`` are the children, and ``metas`` the data.
    """

    type: Any
    flatten: Callable[[Any], Any] | None = None
    unflatten: Callable[[Any, Any], Any] | None = None
    with_keys: Callable[[Any], Any] | None = None
    fields: tuple[str, ...] = ()
    metas: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a structure, whose nodes are in post-order.

    ``data`` is the type of a named tuple, the keys of a dict, or auxiliary data; the counts include the node itself.
    """

    kind: Kind
    arity: int = 0
    data: Any = None
    custom: Registration | None = None
    num_leaves: int = 1
    num_nodes: int = 1

    @staticmethod
    def over(before: Sequence[Node], kind: Kind, arity: int, data: Any = None, custom: Any = None) -> Node:
        """The node whose children end the nodes ``before``."""
        leaves, nodes, position = 0, 1, len(before)
        for _ in range(arity):
            child = before[position - 1]
            leaves, nodes, position = leaves + child.num_leaves, nodes + child.num_nodes, position - child.num_nodes
        return Node(kind, arity, data, custom, leaves, nodes)

    @property
    def identity(self) -> tuple[Any, ...]:
        """What structures have in common that hash alike; data may have no hash."""
        return self.kind, self.arity, self.type

    @property
    def type(self) -> Any:
        """The type of the container; None for a leaf."""
        if self.kind is Kind.NAMEDTUPLE:
            return self.data
        return _TYPES[self.kind] if self.custom is None else self.custom.type

    def is_like(self, other: Node) -> bool:
        """Whether both make the same container of the same children."""
        return self.identity == other.identity and (self.kind is Kind.NAMEDTUPLE or bool(self.data == other.data))

    def made(self, children: Sequence[Any]) -> Any:
        """The container of some children."""
        match self.kind:
            case Kind.NONE:
                return None
            case Kind.TUPLE:
                return tuple(children)
            case Kind.LIST:
                return list(children)
            case Kind.DICT:
                return dict(zip(self.data, children, strict=True))
            case Kind.NAMEDTUPLE:
                return self.data(*children)
            case Kind.DATACLASS if self.custom is not None:
                named = zip((*self.custom.fields, *self.custom.metas), (*children, *self.data), strict=True)
                return self.custom.type(**dict(named))
            case _ if self.custom is not None and self.custom.unflatten is not None:
                return self.custom.unflatten(self.data, tuple(children))
            case _:
                (leaf,) = children
                return leaf

    def shown(self, children: Sequence[str]) -> str:
        """The node as structures are printed."""
        match self.kind:
            case Kind.LEAF:
                return "*"
            case Kind.NONE:
                return "None"
            case Kind.TUPLE:
                return f"({', '.join(children)}{',' * (len(children) == 1)})"
            case Kind.LIST:
                return f"[{', '.join(children)}]"
            case Kind.DICT:
                return f"{{{', '.join(f'{k!r}: {c}' for k, c in zip(self.data, children, strict=True))}}}"
            case Kind.NAMEDTUPLE:
                name = f"namedtuple[{self.data.__name__}]"
            case _:
                name = f"{self.type.__name__}[{self.data}]"
        return f"CustomNode({name}, [{', '.join(children)}])"


_TYPES: dict[Kind, Any] = {
    Kind.LEAF: None,
    Kind.LIST: list,
    Kind.NONE: type(None),
    Kind.TUPLE: tuple,
    Kind.DICT: dict,
}


def taken_apart(value: Any, kind: Kind, custom: Registration | None) -> tuple[Iterable[Any], Any]:
    """The children of a container, and its data."""
    match kind:
        case Kind.NONE:
            return (), None
        case Kind.DICT:
            keys = sorted_keys(value)
            return [value[key] for key in keys], keys
        case Kind.NAMEDTUPLE:
            return list(value), type(value)
        case Kind.DATACLASS if custom is not None:
            children = [getattr(value, name) for name in custom.fields]
            return children, tuple(getattr(value, name) for name in custom.metas)
        case _ if custom is not None and custom.flatten is not None:
            return _pair(custom.flatten(value), "to_iterable", "(children, aux_data)", "children")
        case _:
            return value, None


def with_keys(value: Any, kind: Kind, custom: Registration | None) -> tuple[list[tuple[Any, Any]], Any]:
    """The children of a container with their keys, and its data."""
    if custom is not None and custom.with_keys is not None:
        form = "(key_leaf_pairs, aux_data)"
        pairs, data = _pair(custom.with_keys(value), "to_iterable_with_keys", form, "key_leaf_pairs")
        return [_key_and_child(pair) for pair in pairs], data
    given, data = taken_apart(value, kind, custom)
    children = list(given)
    match kind:
        case Kind.DICT:
            keys = [DictKey(key) for key in data]
        case Kind.NAMEDTUPLE:
            keys = [GetAttrKey(name) for name in type(value)._fields]
        case Kind.DATACLASS if custom is not None:
            keys = [GetAttrKey(name) for name in custom.fields]
        case Kind.CUSTOM:
            keys = [FlattenedIndexKey(i) for i in range(len(children))]
        case _:
            keys = [SequenceKey(i) for i in range(len(children))]
    return list(zip(keys, children, strict=True)), data


def sorted_keys(value: dict[Any, Any]) -> list[Any]:
    """The keys of a dict in order. Raises ValueError where they have none."""
    try:
        return sorted(value)
    except Exception as error:
        raise ValueError("the keys of a dictionary have no order: sorting them failed") from error


def _pair(given: Any, name: str, form: str, children: str) -> tuple[Any, Any]:
    text = f"{name} of a custom node gives a tuple, {form}"
    if not isinstance(given, tuple) or len(given) != 2:  # pyright: ignore[reportUnknownArgumentType]
        raise ValueError(f"{text}, got {given}")
    first: Any
    first, data = given
    try:
        iter(first)
    except TypeError:
        raise ValueError(f"{text}, with iterable {children}, got {given}") from None
    return first, data


def _key_and_child(pair: Any) -> tuple[Any, Any]:
    if not isinstance(pair, tuple) or len(pair) != 2:  # pyright: ignore[reportUnknownArgumentType]
        raise ValueError(
            "The to_iterable_with_keys function for a custom PyTree node should return a (key_leaf_pairs, aux_data) "
            f"tuple where 'key_leaf_pairs' are pairs, got {pair}"
        )
    key: Any
    key, child = pair
    return key, child
