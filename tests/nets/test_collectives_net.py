"""Generated programs of collectives: loops share bodies, and reads surround what waits for one of them."""

import re
from collections import Counter

from fuzz import collectives
from fuzz.programs.devices.collective_bodies import spread_module
from fuzz.programs.devices.copies import copies_module
from fuzz.programs.devices.rendezvous import Spread
from xlakit.ir.instruction import HloModule
from xlakit.passes.analysis.sites import sites_met_apart


def test_loops_of_different_trip_counts_share_a_body_often_enough():
    texts = [spread_module(2, number).text for number in range(60)]
    bodies = [Counter(re.findall(r"body=(\w+)", text)) for text in texts]
    assert sum(max(counts.values(), default=0) > 1 for counts in bodies) >= 12
    # In branches of a conditional that devices take apart, each with two loops of one body.
    assert sum(max(counts.values(), default=0) == 4 for counts in bodies) >= 6


def test_what_waits_for_a_read_is_read_beside_it():
    waiting = r"(\w+) = (\S+) negate\((\w+)\)\n.*?(\w+) = \2 all-reduce\(.*control-predecessors={\1}\n"
    pattern = re.compile(waiting + r"\s*\w+ = \2 subtract\(\3, \4\)")
    assert sum(bool(pattern.search(spread_module(2, number).text)) for number in range(60)) >= 8


def test_devices_meet_in_copies_with_and_without_channels():
    texts = [copies_module(2, number).text for number in range(12)]
    apart = [text for text in texts if sites_met_apart(HloModule.from_text(text), by_caller=True)]
    assert len(apart) >= 8
    assert 2 <= sum("channel_id=" in text for text in apart) <= len(apart) - 2


def test_a_program_that_takes_too_long_is_a_finding(monkeypatch, capsys):
    def endless(_):
        while True:
            pass

    monkeypatch.setattr(collectives, "spread_module", lambda seed, number: Spread("", 1, 1, ()))
    monkeypatch.setattr(collectives, "judge", endless)
    monkeypatch.setattr(collectives, "_LONGEST_SECONDS", 0.05)
    assert collectives.main(["--number", "0"]) == 1
    assert "of processor time" in capsys.readouterr().out
