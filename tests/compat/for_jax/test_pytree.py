"""Trees of containers: leaves, structures, paths, pickles. What is expected is what jaxlib 0.6.0 answers."""

import collections
import pickle

import pytest

from xlakit.compat import xla_client as xc

tree = xc._xla.pytree
Point = collections.namedtuple("Point", "x y")


class Pair:
    def __init__(self, a, b):
        self.a, self.b = a, b


class Record:
    def __init__(self, first, second, label):
        self.first, self.second, self.label = first, second, label


@pytest.fixture
def registry():
    made = tree.PyTreeRegistry()
    keyed = lambda p: (((tree.GetAttrKey("a"), p.a), (tree.GetAttrKey("b"), p.b)), "aux")  # noqa: E731
    made.register_node(Pair, lambda p: ((p.a, p.b), "aux"), lambda aux, children: Pair(*children), keyed)
    made.register_dataclass_node(Record, ["first", "second"], ["label"])
    return made


def sample():
    return {"b": [1, (2, None)], "a": Point(3, Pair(4, Record(5, (), "k")))}


def test_leaves_and_structure(registry):
    leaves, structure = registry.flatten(sample())
    assert leaves == [3, 4, 5, 1, 2]
    assert str(structure) == (
        "PyTreeDef({'a': CustomNode(namedtuple[Point], [*, CustomNode(Pair[aux], [*, "
        "CustomNode(Record[('k',)], [*, ()])])]), 'b': [*, (*, None)]})"
    )
    assert (structure.num_leaves, structure.num_nodes) == (5, 13)
    again = structure.unflatten(iter("vwxyz"))
    assert (again["b"], again["a"].x, again["a"].y.b.first, again["a"].y.b.label) == (["y", ("z", None)], "v", "x", "k")
    assert structure.flatten_up_to(again) == list("vwxyz")
    for count, words in ((4, "4 leaves for the 5 of this structure"), (6, "more leaves than the 5")):
        with pytest.raises(ValueError, match=words):
            structure.unflatten(range(count))


def test_paths(registry):
    paths = {"".join(map(str, path)): leaf for path, leaf in registry.flatten_with_path(sample())[0]}
    assert paths == {"['a'].x": 3, "['a'].y.a": 4, "['a'].y.b.first": 5, "['b'][0]": 1, "['b'][1][0]": 2}
    assert repr(registry.flatten_with_path([7])[0]) == "[((SequenceKey(idx=0),), 7)]"
    keys = [tree.SequenceKey(1), tree.DictKey("k"), tree.GetAttrKey("n"), tree.FlattenedIndexKey(2)]
    assert [pickle.loads(pickle.dumps(key)) for key in keys] == keys
    assert len({*keys, tree.DictKey("k"), tree.SequenceKey(2)}) == 5


def test_structures_are_values(registry):
    first, second = (registry.flatten(t)[1] for t in ((1, [2]), (1, (2,))))
    assert first == registry.flatten((5, [6]))[1]
    assert hash(first) == hash(registry.flatten((5, [6]))[1])
    assert first != second
    assert str(first.compose(second)) == "PyTreeDef(((*, (*,)), [(*, (*,))]))"
    assert [str(child) for child in first.children()] == ["PyTreeDef(*)", "PyTreeDef([*])"]
    assert first.node_data() == (tuple, None)
    made = tree.PyTreeDef.make_from_node_data_and_children(registry, (tuple, None), first.children())
    assert made == first
    assert first.walk(lambda children, data: sum(children), lambda leaf: leaf * 10, [1, 2]) == 30
    assert str(tree.tuple(registry, [first])) == "PyTreeDef(((*, [*]),))"
    with pytest.raises(TypeError):
        first == 3  # noqa: B015


def test_pickles_and_messages():
    found = tree.default_registry()
    structure = found.flatten({"b": (1, None), "a": [2]})[1]
    again = pickle.loads(pickle.dumps(structure))
    assert again == structure and again.registry is found
    data = structure.serialize_using_proto()
    # As jaxlib 0.6.0 writes it.
    assert data == (
        b"\n\x02\x10\x01\n\x04\x08\x01\x10\x02\n\x02\x10\x01\n\x02\x10\x03\n\x04\x08\x02\x10\x04"
        b"\n\n\x08\x02\x10\x05\x1a\x04\n\x02\x00\x01\x12\x01a\x12\x01b"
    )
    assert tree.PyTreeDef.deserialize_using_proto(found, data) == structure
    with pytest.raises(ValueError, match="User-defined nodes"):
        found.flatten(Point(1, 2))[1].serialize_using_proto()
    for wrong in (b"\xff", b"", b"\n\x04\x08\x02\x10\x04"):
        with pytest.raises(xc.XlaRuntimeError, match="these bytes are no PyTreeDefProto"):
            tree.PyTreeDef.deserialize_using_proto(found, wrong)


@pytest.mark.parametrize(
    ("structure_of", "value", "words"),
    [
        ((1, 2), (1,), r"a tuple of 1 elements, where the structure has 2: \(1,\)"),
        ([1], (1,), r"the structure has a list here, the tree \(1,\)"),
        ({"a": 1}, {"b": 1}, r"other keys than the \['a'\] of the structure: \{'b': 1\}"),
        (Point(1, 2), (1, 2), r"the structure has a named tuple here, the tree \(1, 2\)"),
        (None, 3, "the structure has None here, the tree 3"),
        (Pair(1, 2), 3, "a custom node of another type"),
    ],
)
def test_trees_of_other_structures(registry, structure_of, value, words):
    with pytest.raises(ValueError, match=words):
        registry.flatten(structure_of)[1].flatten_up_to(value)


def test_what_is_a_leaf(registry):
    assert registry.flatten((1, [2, Pair(3, 4)]), lambda x: isinstance(x, list))[0][0] == 1
    assert registry.flatten(None)[0] == []
    assert tree.PyTreeRegistry(enable_none=False).flatten((None,))[0] == [None]
    assert registry.flatten(collections.OrderedDict(a=1))[0] == [{"a": 1}]
    assert tree.all_leaves(registry, [1, "s"]) and not tree.all_leaves(registry, [()])
    nested = 1
    for _ in range(5000):
        nested = (nested,)
    leaves, structure = registry.flatten(nested)
    assert (leaves, structure.num_nodes) == ([1], 5001)
    assert registry.flatten(structure.unflatten([2]))[0] == [2]


def test_functions_that_give_something_else(registry):
    class Wrong:
        pass

    registry.register_node(Wrong, lambda _: 3, lambda aux, children: None)
    with pytest.raises(ValueError, match=r"gives a tuple, \(children, aux_data\), got 3"):
        registry.flatten(Wrong())
    with pytest.raises(ValueError, match="<class 'tuple'> is registered already"):
        registry.register_node(tuple, iter, lambda aux, children: None)
    with pytest.raises(ValueError, match="have no order"):
        registry.flatten({1: 2, "a": 3})
