"""Programs on xla_client give what they gave on jaxlib 0.6.0."""

import json

import numpy as np
import pytest
from compat import programs, recording

from xlakit.compat import xla_client as xc

RECORDED = json.loads(recording.RECORDED.read_text())


def test_all_programs_are_recorded():
    assert set(RECORDED) == set(programs.PROGRAMS)


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_results_are_those_of_jaxlib(client, name):
    results = programs.run(xc, client, name)
    expected = [recording.array_of(record) for record in RECORDED[name]]
    assert [(r.dtype, r.shape) for r in results] == [(e.dtype, e.shape) for e in expected]
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=programs.PROGRAMS[name][2], atol=1e-6)


@pytest.mark.parametrize("name", ["reduction", "conditionals", "sorting"])
def test_a_program_survives_its_proto(client, name):
    computation = xc.XlaComputation(programs.build(xc, name).as_serialized_hlo_module_proto())
    arguments = programs.flat(programs.PROGRAMS[name][1])
    results = xc.execute_with_python_values(client.compile(computation), arguments, client)
    for result, record in zip(results, RECORDED[name], strict=True):
        np.testing.assert_allclose(result, recording.array_of(record), rtol=1e-5)
