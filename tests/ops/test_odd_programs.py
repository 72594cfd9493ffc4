"""Programs in HLO text that look odd and that XLA takes: what they mean, and where that ends."""

import numpy as np
import pytest
from evaluating import compiled, floats, ints, same

import xlakit as xla


def module(body, *others):
    """The entry computation of these instructions, after the other computations; read from text and from a proto."""
    text = "\n\n".join(["HloModule m", *others, f"ENTRY main {{\n{body}\n}}\n"])
    found = xla.HloModule.from_text(text)
    found.verify()
    again = xla.HloModule.from_text(found.to_text())
    assert again.to_text() == found.to_text()
    xla.HloModule.from_proto(found.to_proto()).verify()
    return again


def run(found, *arguments, **options):
    return compiled(found, **options)(*arguments)


def refused(match, body, *others):
    with pytest.raises((xla.ShapeError, xla.VerificationError), match=match) as caught:
        module(body, *others)
    assert caught.value.hint
    return caught.value


# -- transfers and collectives ---------------------------------------------------------------------

SEND = """x = f32[2] parameter(0)
t = token[] after-all()
s = (f32[2], u32[], token[]) send(t, x), channel_id=1
r = (f32[2], u32[], token[]) recv(t), channel_id=1
d = token[] send-done(s), channel_id=1
e = (f32[2], token[]) recv-done(r), channel_id=1
ROOT v = f32[2] get-tuple-element(e), index=0"""


def test_a_send_may_name_its_token_first():
    found = module(SEND)
    send = next(i for i in found.entry.instructions if i.opcode == "send")
    assert str(send.shape) == "(token[], u32[], token[])"
    same(run(found, floats([1, 2])), floats([1, 2]))
    refused("a token cannot be sent", SEND.replace("send(t, x)", "send(t, t)"))
    refused("must be a token", SEND.replace("send(t, x)", "send(x, x)"))


ADD = "add {\na = {kind}[] parameter(0)\nb = {kind}[] parameter(1)\nROOT c = {kind}[] add(a, b)\n}"


def add_of(kind):
    return ADD.replace("{kind}", kind)


def test_the_computation_of_an_all_reduce_may_be_of_another_type():
    body = """x = f32[2] parameter(0)
i = s32[] parameter(1)
ROOT r = (f32[2], s32[]) all-reduce(x, i), replica_groups={}, to_apply=add"""
    large = 2**24 + 1
    for kind in ("f64", "s8"):
        executable = compiled(module(body, add_of(kind)), num_replicas=2)
        results = executable.execute_replicated([[floats([0.5, 1]), ints(large)], [floats([0.25, 2]), ints(large)]])
        for result in results:
            same(result, (floats([0.75, 3]), ints(2 * large)))


def test_a_computation_of_another_type_does_one_thing():
    both = "both {\na = s32[] parameter(0)\nb = s32[] parameter(1)\nc = s32[] add(a, b)\nROOT d = s32[] negate(c)\n}"
    body = "x = f32[2] parameter(0)\nROOT r = f32[2] all-reduce(x), replica_groups={}, to_apply=both"
    executable = compiled(module(body, both), num_replicas=2)
    with pytest.raises(xla.UnsupportedError, match="more than one operation"):
        executable.execute_replicated([[floats([0, 1])], [floats([2, 3])]])
    refused("must combine two scalars", body, "both {\nROOT a = f32[] parameter(0)\n}")


def test_several_operands_of_a_permute_start_may_be_tuples():
    body = """x = (f32[2], s32[]) parameter(0)
y = f32[] parameter(1)
s = (((f32[2], s32[]), f32[]), ((f32[2], s32[]), f32[])) collective-permute-start({operands}),
  source_target_pairs={{0,1}}
ROOT d = ((f32[2], s32[]), f32[]) collective-permute-done(s)"""
    executable = compiled(module(body.replace("{operands}", "x, y")), num_replicas=2)
    one = [(floats([1, 2]), ints(3)), floats(4)]
    first, second = executable.execute_replicated([one, one])
    same(first, ((floats([0, 0]), ints(0)), floats(0)))
    same(second, ((floats([1, 2]), ints(3)), floats(4)))
    refused("takes arrays", body.replace("{operands}", "x"))


def test_the_blocks_of_an_all_to_all_are_laid_out_alike():
    body = """x = f32[2,2]{1,0} parameter(0)
y = f32[2,2]{0,1:S(1)} parameter(1)
ROOT r = (f32[2,2], f32[2,2]) all-to-all(x, y), replica_groups={{0,1}}"""
    refused("'x' and 'y' are laid out differently", body)
    module(body.replace("{1,0}", "{0,1}"))


# -- shapes that do not follow from the operands ---------------------------------------------------


@pytest.mark.parametrize("kind", ["FFT", "IFFT"])
def test_a_transform_of_no_points_is_zero(kind):
    body = f"x = c64[2,3] parameter(0)\nROOT r = c64[2,3] fft(x), fft_type={kind}, fft_length={{0}}"
    same(run(module(body), np.ones((2, 3), np.complex64)), np.zeros((2, 3), np.complex64))
    empty = f"x = c64[2,0] parameter(0)\nROOT r = c64[2,0] fft(x), fft_type={kind}, fft_length={{2,5}}"
    same(run(module(empty), np.ones((2, 0), np.complex64)), np.ones((2, 0), np.complex64))
    refused("takes innermost dimensions", body.replace("{0}", "{4}"))


def test_real_transforms_have_the_lengths_of_their_dimensions():
    refused(
        "takes innermost dimensions",
        "x = f32[3] parameter(0)\nROOT r = c64[3] fft(x), fft_type=RFFT, fft_length={0}",
    )


@pytest.mark.reference
def test_a_bitcast_may_leave_memory_out_but_not_invent_any():
    smaller = module("x = f32[4] parameter(0)\nROOT r = s32[2] bitcast(x)")
    same(run(smaller, floats([1, 2, 3, 4])), floats([1, 2]).view(np.int32))
    larger = module("x = f32[4] parameter(0)\nROOT r = f32[8] bitcast(x)")
    with pytest.raises(xla.UnsupportedError, match="takes 32 bytes of memory") as caught:
        run(larger, floats([1, 2, 3, 4]))
    assert caught.value.hint


def test_random_numbers_may_be_of_another_precision_than_their_bounds():
    body = """a = f32[] constant(1)
b = {kind}[] constant(2)
ROOT r = bf16[100] rng(a, b), distribution=rng_uniform"""
    values = run(module(body.replace("{kind}", "f32"))).astype(np.float32)
    assert np.all((values >= 1) & (values < 2))
    refused("different types", body.replace("{kind}", "f16"))


BITS = "s = {state} parameter(0)\nROOT r = {result} rng-bit-generator(s), algorithm=rng_{name}"


@pytest.mark.parametrize(("name", "used"), [("three_fry", 2), ("philox", 3)])
def test_a_random_state_may_have_words_to_spare(name, used):
    def bits(words, result):
        state = f"u64[{words}]"
        return module(BITS.format(state=state, result=result.format(state=state), name=name))

    state = np.arange(1, 7, dtype=np.uint64)
    after, values = run(bits(6, "({state}, u32[5])"), state)
    short_after, short_values = run(bits(used, "({state}, u32[5])"), state[:used])
    same(values, short_values)
    same(after, np.concatenate([short_after, state[used:]]))
    # Only the bits, where the result is an array.
    same(run(bits(used, "u32[5]"), state[:used]), short_values)


# -- buffers, and operations that learn late what they work on -------------------------------------


def test_asynchronous_aliases_go_across_buffers():
    body = """x = f32[2] parameter(0)
s = ((f32[2]), f32[2], (b(f32[2]))) async-start(x), output_to_operand_aliasing={{2,0}: (0, {})}, calls=c
ROOT d = f32[2] async-done(s)"""
    called = 'c {\np = f32[2] parameter(0)\nROOT r = f32[2] custom-call(p), custom_call_target="f"\n}'
    module(body, called)
    refused("joins", body.replace("b(f32[2])", "b(f32[3])"), called)


def test_a_custom_call_alias_does_not_cross_buffers():
    body = """x = b(f32[2]) parameter(0)
ROOT y = f32[2] custom-call(x), custom_call_target="f", output_to_operand_aliasing={{}: (0, {})}"""
    refused("joins", body)


TWICE = """add {
a = f32[] parameter(0)
b = f32[] parameter(1)
ROOT c = f32[] add(a, b)
}"""


@pytest.mark.parametrize(
    "body",
    [
        """s = ((), (), u32[]) call-start(), to_apply=add, async_execution_thread="side"
u = ((f32[], f32[]), (), u32[]) call-update(s, x, y), async_execution_thread="side"
ROOT d = f32[] call-done(u)""",
        """s = ((f32[]), (), u32[]) fusion-start(x), kind=kLoop, calls=add
u = ((f32[], f32[]), f32[], u32[]) fusion-update(s, y)
ROOT d = f32[] fusion-done(u)""",
        """s = ((), f32[], u32[]) add-start()
u = ((f32[]), f32[], u32[]) add-update(s, x)
v = ((f32[], f32[]), f32[], u32[]) add-update(u, y)
ROOT d = f32[] add-done(v)""",
        """s = ((f32[], f32[]), (), u32[]) add-start(x, y)
ROOT d = f32[] add-done(s)""",
    ],
)
def test_an_asynchronous_operation_written_short_may_learn_its_operands_late(body):
    found = module(f"x = f32[] parameter(0)\ny = f32[] parameter(1)\n{body}", TWICE)
    same(run(found, floats(3), floats(4)), floats(7))


def test_a_scan_in_text_that_does_not_say_so_is_not_associative():
    step = """step {
x = f32[] parameter(0)
c = f32[] parameter(1)
s = f32[] add(x, c)
ROOT t = (f32[], f32[]) tuple(s, s)
}"""
    body = """x = f32[3] parameter(0)
z = f32[] constant(0)
ROOT r = (f32[3], f32[]) scan(x, z), dimensions={0}, num_carries=1, to_apply=step"""
    found = module(body, step)
    assert found.entry.root.op.is_associative.text == "false"
    assert xla.HloModule.from_proto(found.to_proto()).entry.root.op.is_associative.text == "false"
