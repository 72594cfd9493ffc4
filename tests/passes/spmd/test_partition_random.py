"""Generated modules, split over partitions in ways made by chance, give what they give whole."""

import pytest

from fuzz.programs.composed.modules import module
from fuzz.programs.composed.split_chains import chain, product_chain
from fuzz.programs.split_steps import register_calls
from fuzz.sharded import judge, sharded_module


@pytest.mark.parametrize("number", range(24))
def test_a_generated_module_gives_what_it_gives_whole(number):
    assert judge(module(29, number), number) == ""


@pytest.mark.parametrize("number", range(2))
def test_a_generated_module_is_split_for_machine_code(number):
    assert judge(module(31, number), number, backend="cpu") == ""


@pytest.mark.parametrize("number", range(1, 24, 2))
def test_groups_that_are_sharded_alike_and_calls_on_each_of_a_batch(number):
    register_calls()
    assert judge(sharded_module(37, number), number) == ""


def test_chains_of_operations_along_split_dimensions():
    faults = {number: judge(chain(43, number), number, often=0.08, exact=True) for number in range(30)}
    assert {number: fault for number, fault in faults.items() if fault} == {}


def test_chains_of_products_give_what_they_gave_whole():
    faults = {n: judge(product_chain(44, n), n, often=0.5, exact=True) for n in range(25)}
    assert not {n: fault for n, fault in faults.items() if fault}
