"""What slices hold, compared with memory of which every byte says which part of which value it is."""

import random

from xlakit.memory.checker.contents import NOTHING, Contents, Value

_BYTES = 24


def _expected(line, begin, end):
    first = line[begin]
    whole = first is not None and all(byte == (first[0], n) for n, byte in enumerate(line[begin:end]))
    return first[0] if whole and first[0].bytes == end - begin else None


def test_a_slice_holds_what_was_written_to_it_as_a_whole():
    rng = random.Random(5)
    for _ in range(200):
        contents, line = Contents(), [None] * _BYTES
        for _ in range(12):
            begin = rng.randrange(_BYTES)
            end = rng.randint(begin + 1, _BYTES)
            value = Value(end - begin, None)
            contents.write(begin, end, frozenset((value,)))
            line[begin:end] = [(value, n) for n in range(end - begin)]
            for low in range(_BYTES):
                for high in range(low + 1, _BYTES + 1):
                    expected = _expected(line, low, high)
                    assert contents.held(low, high) == (frozenset((expected,)) if expected else NOTHING)


def _made(*slices):
    contents = Contents()
    for begin, end, *values in slices:
        contents.write(begin, end, frozenset(values))
    return contents


def test_after_branches_a_slice_holds_what_all_of_them_leave_there():
    a, b = Value(4, None), Value(4, None)
    before = _made((0, 4, a, b), (8, 12, a), (16, 20, b))
    assert before.meet(_made((0, 4, a), (8, 12, b), (16, 18, b)))
    assert before.held(0, 4) == {a}
    assert before.held(8, 12) == before.held(16, 20) == NOTHING
    assert not before.meet(before.copy())


def test_names_are_added_where_a_value_is_and_old_ones_go():
    old, new, given = Value(4, None), Value(4, None), Value(4, None)
    contents = _made((0, 4, given), (8, 12, old), (16, 20, given, old))
    contents.also({given: [new]}, without=[old])
    assert contents.held(0, 4) == contents.held(16, 20) == {given, new}
    assert contents.held(8, 12) == NOTHING


def test_a_loop_that_changes_places_gives_each_state_the_other_name():
    a, b = Value(4, None), Value(4, None)
    contents = _made((0, 4, a), (8, 12, b))
    contents.also({a: [b], b: [a]}, without=[a, b])
    assert (contents.held(0, 4), contents.held(8, 12)) == ({b}, {a})
