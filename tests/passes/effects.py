"""Random programs full of effects, and the effects that they have when they run."""

import random

import numpy as np

import xlakit as xla

S32 = xla.make_shape(xla.S32)


class Effects:
    """Writes a program that notes numbers, feeds them and reads feeds, in loops, branches, calls and async pairs."""

    def __init__(self, seed):
        self._random = random.Random(seed)
        self._count = 0

    def program(self):
        builder = xla.XlaBuilder("effects")
        value = xla.parameter(builder, 0, S32)
        return builder.build(self._block(value, 3))

    def _block(self, value, depth):
        """A few operations on a number and on their results."""
        for _ in range(self._random.randint(1, 3)):
            made = self._thing(value, depth)
            # Some results are used, of others only the effect is left.
            if self._random.random() < 0.7:
                value = made
        return value

    def _thing(self, value, depth):
        simple = [self._note, self._note, self._dead_note, self._outfeed, self._infeed, self._ordered, self._pure]
        nested = [
            self._loop,
            self._loop,
            self._test_with_effects,
            self._choose,
            self._choose,
            self._call,
            self._async_pair,
        ]
        return self._random.choice(simple + nested if depth else simple)(value, depth - 1)

    def _number(self):
        self._count += 1
        return self._count

    # -- effects -----------------------------------------------------------------------------------

    def _note(self, value, depth):
        return xla.custom_call(value.builder, "note", [value * 8 + self._number()], S32, has_side_effect=True)

    def _dead_note(self, value, depth):
        self._note(xla.constant(value.builder, self._random.randint(0, 3)), depth)
        return value

    def _outfeed(self, value, depth):
        xla.outfeed(value + self._number())
        return value + 1

    def _infeed(self, value, depth):
        return xla.infeed(value.builder, S32) + value

    def _ordered(self, value, depth):
        first = xla.outfeed_with_token(value, xla.create_token(value.builder))
        second = xla.outfeed(value * 2)
        pair = xla.infeed_with_token(xla.after_all([second, first]), S32)
        return xla.add_dependency(xla.get_tuple_element(pair, 0), xla.get_tuple_element(pair, 1))

    def _pure(self, value, depth):
        return xla.custom_call(value.builder, "next", [value], S32)

    # -- what they stand in --------------------------------------------------------------------------

    def _loop(self, value, depth):
        builder = value.builder
        rounds = self._random.choice([0, 1, 1, 2, 3, 9])

        def body(state):
            count, inner, other, token = (xla.get_tuple_element(state, i) for i in range(4))
            inner = self._block(inner, depth)
            if self._random.random() < 0.5:
                token = xla.outfeed_with_token(inner, token)
            return count + 1, inner, other, token

        def goes_on(state):
            return xla.get_tuple_element(state, 0) < rounds

        start = (xla.constant(builder, 0), value, value + 5, xla.create_token(builder))
        state = xla.while_(goes_on, body, start)
        return xla.get_tuple_element(state, self._random.choice([1, 2]))

    def _test_with_effects(self, value, depth):
        """A loop of at most so many rounds whose test is noted, too."""
        rounds = self._random.choice([0, 1, 3])

        def goes_on(state):
            count = xla.get_tuple_element(state, 0)
            xla.outfeed(count + 100)
            return count < rounds

        def body(state):
            return xla.get_tuple_element(state, 0) + 1, xla.get_tuple_element(state, 1) + 1

        start = (xla.constant(value.builder, 0), value)
        return xla.get_tuple_element(xla.while_(goes_on, body, start), self._random.choice([0, 1]))

    def _choose(self, value, depth):
        branches = [lambda v: self._block(v, depth) for _ in range(2)]
        if self._random.random() < 0.3:
            branches[1] = lambda v: v
        builder = value.builder
        chooser = (value & 1) > 0 if self._random.random() < 0.6 else xla.constant(builder, self._random.random() < 0.5)
        return xla.conditional(chooser, value, branches[0], value + 1, branches[1])

    def _call(self, value, depth):
        return xla.call(value.builder, lambda v: self._block(v, depth), [value])

    def _async_pair(self, value, depth):
        thread = self._random.choice(["main", "other"])
        # What an async pair runs is one instruction.
        state = xla.async_start(value.builder, lambda v: self._call(v, depth), [value], thread)
        if self._random.random() < 0.5:
            self._note(value, depth)
        return xla.async_done(state)


def trace(program, backend, argument):
    """The result of a program, and all its effects in the order in which they happened."""
    seen = []
    execution_context = xla.ExecutionContext(timeout=5)
    append, read = execution_context.append_outfeed, execution_context.next_infeed

    def outfeed(device, instruction, value, shape):
        seen.append(("out", int(value)))
        append(device, instruction, value, shape)

    def infeed(*arguments):
        value = read(*arguments)
        seen.append(("in", int(value)))
        return value

    execution_context.append_outfeed, execution_context.next_infeed = outfeed, infeed
    functions = {"note": lambda x: (seen.append(("note", int(x))), x)[1], "next": lambda x: x + np.int32(1)}
    executable = xla.compile(
        program, backend=backend, execution_context=execution_context, custom_calls=functions, cache=False
    )
    for number in range(2000):
        execution_context.infeed(0, np.int32(number % 7))
    return int(executable(argument)), seen
