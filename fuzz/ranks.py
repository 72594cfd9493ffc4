"""``mpiexec -n P python -m fuzz.ranks``: the programs of fuzz.collectives, on several processes and on one.

Each process runs its devices of each program that has ``--devices`` of them, interpreted or compiled, and compares
their results with those of the interpreter on one process, to the bit. Half of the programs donate arguments, in whose
memory results of the same shape may lie: those of few collectives all do.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence

from fuzz.modules import difference_in_bits
from fuzz.programs.devices.collective_bodies import spread_module
from fuzz.programs.devices.copies import copies_module
from fuzz.programs.devices.rendezvous import Spread
from xlakit import Client, compile as compile_program, distributed
from xlakit.ir.instruction import HloModule


def donating(program: Spread, rng: random.Random) -> HloModule:
    """The module of a program, with results in the memory of arguments of the same shape, which a client donates."""
    entry = HloModule.from_text(program.text).entry.program_shape
    places = list(enumerate(entry.parameters))
    rng.shuffle(places)
    pairs: list[str] = []
    for number, shape in enumerate(entry.result.tuple_shapes):
        found = next((place for place in places if place[1] == shape), None)
        if found is not None:
            places.remove(found)
            pairs.append(f"{{{number}}}: ({found[0]}, {{}}, may-alias)")
    head, rest = program.text.split("\n", 1)
    return HloModule.from_text(f"{head}, input_output_alias={{{', '.join(pairs)}}}\n{rest}")


def program_of(seed: int, number: int) -> tuple[Spread, random.Random | None]:
    """A program, and what decides which arguments it donates; None if it donates none."""
    rng = random.Random(f"{seed} {number}")
    if number % 2:
        return spread_module(seed, number, few=True), rng
    return (copies_module if number % 4 else spread_module)(seed, number), rng if rng.random() < 0.25 else None


def judge(
    program: Spread, cluster: distributed.Cluster, client: Client, backend: str, rng: random.Random | None
) -> str:
    """Describe the fault of the results of the devices in this process; "" if there is none.

    rng: decides which arguments are donated; None if none are.
    """
    module = HloModule.from_text(program.text) if rng is None else donating(program, rng)
    expected = compile_program(module, backend="interpreter").execute_replicated(program.arguments)
    here = cluster.local_devices
    try:
        if rng is not None:
            loaded = client.compile(
                module, num_replicas=program.replicas, num_partitions=program.partitions, backend=backend
            )
            actual = loaded.execute_replicated([program.arguments[i] for i in here])
        else:
            executable = compile_program(module, backend=backend, execution_context=cluster.new_execution_context())
            actual = executable.execute_replicated([program.arguments[i] for i in here])
    except Exception as error:  # any exception is a finding
        return f"{type(error).__name__}: {error}"
    for device, own in zip(here, actual, strict=True):
        faults = map(difference_in_bits, own, expected[device])
        fault = next(filter(None, faults), "")
        if fault:
            return f"device {device}: {fault}"
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    summary = (__doc__ or "").split("\n\n", 1)[0]
    parser = argparse.ArgumentParser(allow_abbrev=False, prog="mpiexec -n P python -m fuzz.ranks", description=summary)
    parser.add_argument("--count", type=int, default=100, help="how many programs (100)")
    parser.add_argument("--seed", type=int, default=0, help="what they are made from (0)")
    parser.add_argument("--devices", type=int, default=4, help="how many devices the programs have, from 2 to 8 (4)")
    parser.add_argument("--backend", default="interpreter", choices=("interpreter", "cpu"))
    parser.add_argument("--timeout", type=float, default=60, help="seconds to wait for another process (60)")
    options = parser.parse_args(arguments)
    cluster = distributed.initialize(devices=options.devices, timeout=options.timeout)
    client = Client(distributed=cluster)
    failures, done, number = 0, 0, -1
    while done < options.count:
        number += 1
        program, rng = program_of(options.seed, number)
        if len(program.arguments) != options.devices:
            continue
        done += 1
        fault = judge(program, cluster, client, options.backend, rng)
        if fault:
            failures += 1
            print(f"FAILED on {cluster}: --seed {options.seed} --number {number}: {fault}", flush=True)
    if cluster.process_index == 0:
        print(f"{done} programs on {cluster.process_count} processes: {failures} failures on the devices of the first")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
