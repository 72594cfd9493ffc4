"""The net of xla_client: its calls are answered by our module, and it tells answers apart."""

import copy
import random
from collections import Counter

import pytest

from fuzz.xla_client.calls import DRAWS, drawn
from fuzz.xla_client.compared import difference
from fuzz.xla_client.draft import Draft, spoiled
from fuzz.xla_client.expressions import REASONS, questions
from fuzz.xla_client.probe import DIED, Probe, signatures
from xlakit.compat import xla_client

# Without compilation of their own, or cheap.
QUICK = ["Broadcast", "ConvGeneralDilated", "DotGeneral", "Iota", "Reduce", "Slice", "Sort", "Tuple"]


@pytest.fixture(scope="module")
def probe():
    return Probe(xla_client)


@pytest.mark.parametrize("op", QUICK)
def test_calls_without_a_fault_are_answered_by_results(probe, op):
    call = DRAWS[op](Draft(random.Random(3), op))
    answer = probe.answer(call)
    assert "error" not in answer
    assert not difference(call, answer, copy.deepcopy(answer))


def test_calls_with_a_fault_raise_what_jaxlib_raises(probe):
    answers = [probe.answer(spoiled(seed, drawn(seed, ["Pad", "Rev", "Dot"]))) for seed in range(24)]
    found = {answer["error"] for answer in answers if "error" in answer}
    assert found == {"TypeError", "XlaRuntimeError"}


def test_differences_are_found(probe):
    call = drawn(0, ["Floor"])
    answer = probe.answer(call)
    other = copy.deepcopy(answer)
    other["results"][0]["values"][0] += 1
    assert "element 0" in difference(call, answer, other)
    assert "instead of" in difference(call, answer, {"error": "TypeError", "message": ""})
    assert not difference(call, answer, {"error": DIED})


def test_costs_are_compared(probe):
    call = drawn(0, ["Floor"])
    answer = probe.answer(call)
    other = copy.deepcopy(answer)
    other["cost"]["flops"] = 1e9
    assert "1000000000.0 flops" in difference(call, answer, other)


def test_expressions_are_answered_in_words(probe):
    asked = [question for _, question in questions() if question["block"].endswith((": layout", ": shapeindex"))]
    words = {question["expression"]: probe.answer(question)["words"] for question in asked}
    assert words["L([1, 0], [(8,)], 0) == L([1, 0])"] == "False"
    assert words["L(3)"] == "raises TypeError "
    assert not [line for line, word in words.items() if "NameError" in word]


def test_lines_that_differ_have_a_reason():
    given = Counter(reason for reason, _ in questions())
    assert set(given) == {"", *REASONS.values()}
    # Few of all lines.
    assert sum(given.values()) > 8 * (sum(given.values()) - given[""])


def test_signatures_name_parameters():
    found = signatures(xla_client)
    assert found["_xla.ops.DotGeneral"][:3] == ["lhs", "rhs", "dimension_numbers"]
    assert found["Client.buffer_from_pyval"][:2] == ["self", "argument"]
