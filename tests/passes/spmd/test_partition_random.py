"""Generated modules, split over partitions in ways made by chance, give what they give whole."""

import pytest

from fuzz.programs.modules import module
from fuzz.sharded import judge


@pytest.mark.parametrize("number", range(24))
def test_a_generated_module_gives_what_it_gives_whole(number):
    assert judge(module(29, number), number) == ""


@pytest.mark.parametrize("number", range(2))
def test_a_generated_module_is_split_for_machine_code(number):
    assert judge(module(31, number), number, backend="cpu") == ""
