"""The search for the best knobs, over candidates whose times and results the test sets."""

import numpy as np
import pytest

from xlakit.cpu.tuning.search import search
from xlakit.errors import InternalError, UnsupportedError


class Built:
    def __init__(self, clock, code, time, result):
        self.clock, self.code, self.time, self.result = clock, code, time, result

    def run(self):
        self.clock.now += self.time
        return self.result


class World:
    """What is timed takes as long as ``time`` says of its knobs, and gives what ``result`` does."""

    def __init__(self, time, result=lambda choice: np.float32([1, 2])):
        self.now, self.time, self.result, self.built = 0.0, time, result, []

    def __call__(self):
        return self.now

    def build(self, choice):
        self.built.append(dict(choice))
        return Built(self, str(sorted(choice.items())), self.time(choice), self.result(choice))

    def search(self, alternatives, **more):
        return search(self.build, self.build({}), alternatives, clock=self, **more)


def test_the_fastest_number_of_each_knob_is_found():
    times = {("a", 1): 0.8, ("a", 2): 0.6, ("b", 1): 0.5, ("b", 2): 1.0}
    world = World(lambda choice: 1e6 * np.prod([times[item] for item in choice.items()]))
    found = world.search([("a", (1, 2)), ("b", (1, 2))])
    assert found.choice == {"a": 2, "b": 1}
    assert found.comparison.ratio == pytest.approx(0.3)
    assert (found.compared, found.failed, found.same_bits) == (4, [], True)


def test_nothing_is_chosen_where_nothing_is_clearly_faster():
    found = World(lambda choice: 1e6 * 0.97 ** len(choice)).search([("a", (1, 2))])
    assert found.choice == {}
    assert found.comparison is None


def test_the_same_code_is_not_timed_again():
    world = World(lambda choice: 1e6)
    base = world.build({})
    found = search(lambda choice: base, base, [("a", (1, 2))], clock=world)
    assert found.compared == 0


def test_other_results_are_never_chosen():
    world = World(lambda choice: 1e6 / (1 + len(choice)), lambda choice: np.float32([1, 2 + len(choice)]))
    found = world.search([("a", (1,))])
    assert found.choice == {}
    assert found.failed == ["a=1: the results differ"]


@pytest.mark.parametrize(
    ("result", "same"),
    [(np.float32([1, np.nextafter(np.float32(2), np.float32(3))]), False), (np.float32([1, 2]), True)],
)
def test_another_order_of_sums_is_told(result, same):
    world = World(lambda choice: 1e6 / (1 + len(choice)), lambda choice: result if choice else np.float32([1, 2]))
    found = world.search([("a", (1,))])
    assert found.choice == {"a": 1}
    assert found.same_bits is same


@pytest.mark.parametrize(
    "other", [np.int32([1, 3]), (np.int32([1, 2]), np.float32([np.nan])), (np.int32([1, 2]), np.float32([2.0]))]
)
def test_integers_and_what_is_not_finite_must_be_the_same(other):
    first = (np.int32([1, 2]), np.float32([1.0])) if isinstance(other, tuple) else np.int32([1, 2])
    world = World(lambda choice: 1e6 / (1 + len(choice)), lambda choice: other if choice else first)
    assert world.search([("a", (1,))]).choice == {}


def test_what_does_not_compile_is_told_and_what_does_not_apply_is_not():
    def result(choice):
        if choice:
            raise InternalError("a fault") if choice["a"] == 1 else UnsupportedError("not here")
        return np.float32([1])

    found = World(lambda choice: 1e6, result).search([("a", (1, 2))])
    assert found.failed == ["a=1: a fault"]


def test_a_choice_that_does_not_last_is_dropped():
    # Its first runs are fast, as those of the base are by and by.
    world = World(lambda choice: 1e6)
    runs = []

    class Fading(Built):
        def run(self):
            runs.append(1)
            self.clock.now += 5e5 if len(runs) <= 14 else 1e6
            return self.result

    base = world.build({})
    found = search(lambda choice: Fading(world, "other", 0, base.result), base, [("a", (1,))], clock=world)
    assert len(runs) > 14
    assert found.choice == {}


def test_no_more_is_tried_when_the_time_is_over():
    world = World(lambda choice: 1e6)
    world.search([("a", (1, 2)), ("b", (1, 2))], is_over=lambda: world.now > 5e6)
    assert world.built == [{}, {"a": 1}]
