"""A module in parts that several threads compile: what is together, what it computes, and what is raised."""

import ctypes
import threading

import pytest

from xlakit.cpu.llvm import I64, VOID, Effort, Function, Module, engine
from xlakit.cpu.llvm.library import Library
from xlakit.errors import InternalError

WORD = ctypes.c_int64


def lengthen(fn: Function) -> None:
    """Make a function so long that a part of its own is worth a thread."""
    place = fn.alloca(I64, 1)
    for number in range(40):
        fn.store(fn.i64(number), place)


def module_of_five() -> Module:
    """``left`` and ``right`` both inline ``twice``; ``left`` calls ``helper``; ``entry`` calls both, and is apart."""
    module = Module("five")
    twice = module.function("twice", I64, [I64], attributes=["alwaysinline"])
    twice.ret(twice.parameters[0] * 2)
    helper = module.function("helper", I64, [I64], attributes=["noinline"])
    helper.ret(helper.parameters[0] + 5)
    left = module.function("left", I64, [I64])
    lengthen(left)
    left.ret(left.call(helper, I64, left.call(twice, I64, left.parameters[0])))
    right = module.function("right", I64, [I64])
    lengthen(right)
    right.ret(right.call(twice, I64, right.parameters[0]) * 100)
    entry = module.function("entry", I64, [I64], external=True)
    entry.ret(entry.call(left, I64, entry.parameters[0]) + entry.call(right, I64, entry.parameters[0]))
    for called in (left, right):
        called.attributes.append("noinline")
        called.is_apart = True
    return module


def defined(text: str) -> set[str]:
    return {line.partition("@")[2].partition("(")[0] for line in text.split("\n") if line.startswith("define")}


def run(parts: list[tuple[Effort, str]], threads: int, argument: int) -> int:
    objects = engine.compile_objects(parts, threads)
    library = Library(f"parts{threading.get_ident()}{id(objects)}", objects, ["entry"], {})
    return ctypes.CFUNCTYPE(WORD, WORD)(library.address("entry"))(argument)


def test_one_thread_gets_one_part():
    parts = module_of_five().parts()
    assert [defined(text) for _, text in parts] == [{"twice", "helper", "left", "right", "entry"}]
    assert run(parts, 1, 3) == 11 + 600


def test_two_threads_get_what_calls_each_other_together():
    parts = module_of_five().parts(2)
    together = [defined(text) for _, text in parts]
    (of_left,) = (own for own in together if "left" in own)
    (of_right,) = (own for own in together if "right" in own)
    assert of_left is not of_right
    assert "helper" in of_left
    assert "helper" not in of_right
    # What is always inlined is in each part that calls it.
    assert "twice" in of_left
    assert "twice" in of_right
    assert run(parts, 2, 3) == 11 + 600


def test_efforts_are_apart_and_call_what_another_one_inlines():
    module = module_of_five()
    module.functions["right"].effort = Effort.LITTLE
    parts = module.parts(2)
    assert {"right"} in [defined(text) for effort, text in parts if effort is Effort.LITTLE]
    assert run(parts, 2, 4) == 13 + 800


def test_data_that_is_written_to_is_in_one_part():
    module = Module("counting")
    module.global_data("counter", 8)
    entry = module.function("entry", I64, [I64], external=True)
    for name in ("first", "second"):
        fn = module.function(name, VOID, [], attributes=["noinline"])
        for _ in range(40):
            fn.store(fn.load(I64, fn.address("counter")) + 1, fn.address("counter"))
        fn.ret()
        fn.is_apart = True
        entry.call(fn, VOID)
    entry.ret(entry.load(I64, entry.address("counter")) * entry.parameters[0])
    parts = module.parts(2)
    assert len(parts) == 1
    assert run(parts, 2, 2) == 160


def test_a_variable_of_functions_of_two_efforts_is_refused():
    module = Module("counting")
    module.global_data("counter", 8)
    for name, effort in (("first", Effort.ALL), ("second", Effort.LITTLE)):
        fn = module.function(name, VOID, [], external=True)
        fn.store(fn.load(I64, fn.address("counter")) + 1, fn.address("counter"))
        fn.ret()
        fn.effort = effort
    with pytest.raises(InternalError, match="use the variable counter"):
        module.parts(2)


def test_metadata_comes_with_what_refers_to_it():
    module = Module("loops")
    for name in ("one", "two"):
        fn = module.function(name, VOID, [I64], external=True)
        table = fn.alloca(I64, 1000)
        for _ in range(6):
            with fn.loop(0, fn.parameters[0], independent=True, hints=('"llvm.loop.unroll.disable"',)) as loop:
                fn.store(loop.index, fn.at(table, I64, loop.index))
        fn.ret()
    parts = module.parts(2)
    assert len(parts) == 2
    nodes = [{line.partition(" ")[0] for line in text.split("\n") if line.startswith("!")} for _, text in parts]
    assert all(nodes)
    assert not nodes[0] & nodes[1]
    assert all(engine.compile_objects(parts, 2))


def texts(count: int) -> list[tuple[Effort, str]]:
    return [
        (Effort.ALL, f"define i64 @f{n}(i64 %p) {{\n  %r = mul i64 %p, {n}\n  ret i64 %r\n}}\n") for n in range(count)
    ]


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_objects_are_the_same_and_in_order_on_any_threads(threads):
    alone = [engine.compiled(text, effort) for effort, text in texts(7)]
    assert len(set(alone)) == 7
    assert engine.compile_objects(iter(texts(7)), threads) == alone


def test_no_parts():
    assert engine.compile_objects([], 2) == []
    assert Module("empty").parts(2) == []


def compile_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "xlakit-compile"]


@pytest.mark.parametrize("place", [0, 3])
def test_faulty_text_is_told_wherever_it_is_compiled(place):
    parts = texts(4)
    parts[place] = (Effort.ALL, "define nonsense\n")
    with pytest.raises(InternalError, match="faulty LLVM IR"):
        engine.compile_objects(parts, 2)
    assert not compile_threads()


def test_who_makes_the_texts_may_fail():
    def parts():
        yield from texts(3)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.compile_objects(parts(), 2)
    assert not compile_threads()


def test_one_thread_does_where_there_are_no_more(monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert len(engine.compile_objects(texts(4), 3)) == 4
