"""The roofline of the viewer: what it takes from reports, and what it computes of them."""

import json
import subprocess

import numpy as np
import pytest
from tools.view.programs import ROOFS, STEPS, report_of, step
from tools.view.test_model import MODEL, NODE

from xlakit.errors import ArgumentError
from xlakit.tools.profile import profile
from xlakit.tools.view.profiles import errors_of, roofline_of


def evaluate(script, **values):
    """What a script gives, which is run with Roofline and these values."""
    path = json.dumps(str(MODEL.parent / "roofline.js"))
    # The class of the view is not made here, so that it needs no page.
    text = f"const Roofline = require({path}); const given = {json.dumps(values)};"
    text += f"process.stdout.write(JSON.stringify((() => {{ {script} }})()));"
    done = subprocess.run([NODE, "-e", text], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return json.loads(done.stdout)


def test_steps_and_roofs_of_a_report():
    found = roofline_of(report_of(), "p.json")
    assert [own["name"] for own in found["steps"]] == ["d", "t", "c"]
    assert found["steps"][2]["opcode"] == "copy"
    assert found["roofs"] == ROOFS
    assert "roofs" not in roofline_of(report_of(roofs=None), "p.json")
    assert roofline_of(json.dumps({"runs": 1, "instructions": []}), "p.json") is None


@pytest.mark.parametrize(
    "report",
    [
        "",
        "3",
        "[]",
        report_of([3]),
        report_of([STEPS[0] | {"flops": "many"}]),
        report_of([STEPS[0] | {"bytes": -1}]),
        report_of([STEPS[0] | {"flops": float("nan")}]),
        report_of(roofs=3),
        report_of(roofs=ROOFS | {"bytes_per_nanosecond": {}}),
        report_of(roofs=ROOFS | {"flops_per_nanosecond": {"f32": 0}}),
    ],
)
def test_what_is_no_report_is_refused(report):
    with pytest.raises(ArgumentError, match=r"p\.json is no report of a profile"):
        roofline_of(report, "p.json")


def test_the_report_of_a_run_has_roofs_above_its_bounds():
    module = step()
    report = profile(module, np.ones((8, 8), np.float32), iterations=2).as_json()
    found = roofline_of(report, "report")
    assert found["steps"]
    roofs = found["roofs"]
    assert set(roofs["bytes_per_nanosecond"]) == {"l1", "l2", "l3", "memory"}
    # The least time of the report is what the roofs give for what is computed.
    top = roofs["flops_per_nanosecond"]["f32"]
    bound = [own for own in found["steps"] if own["bound"] == "compute"]
    for own in bound:
        operations = own["flops"] + own["transcendentals"] * roofs["flops_per_transcendental"]
        assert operations / top == pytest.approx(own["roofline"] * own["nanoseconds"], rel=1e-6)
    assert bound


@pytest.mark.skipif(NODE is None, reason="no node to run JavaScript with")
def test_points_decades_and_roofs():
    points = evaluate("return Roofline.points(given.data);", data=roofline_of(report_of(), "p"))
    assert [(p["name"], p["intensity"], p["rate"]) for p in points] == [("t", 2.5, 0.5), ("d", 10, 20), ("c", 0, 0)]
    assert points[2]["bandwidth"] == 6.4
    numbers = [[3, 40], [1], [], [0.002, 0], [100, 1000]]
    decades = evaluate("return given.numbers.map(Roofline.decades);", numbers=numbers)
    assert decades == [[0, 2], [0, 1], [0, 1], [-3, -2], [2, 3]]
    roofs = evaluate("return Roofline.roofs(given.roofs, 0.1, 1000);", roofs=ROOFS)
    assert [r["corners"] for r in roofs] == [
        [[0.1, 20], [0.5, 100]],
        [[0.1, 1], [10, 100]],
        [[0.5, 100], [1000, 100]],
        [[0.25, 50], [1000, 50]],
    ]


def test_errors_of_a_report_are_the_largest_of_each_instruction():
    rows = [("a", 1e-7), ("b", "inf"), ("a", 2e-6), ("a", 0.0)]
    report = json.dumps({"rows": [{"instruction": name, "relative_error": error} for name, error in rows]})
    assert errors_of(report, "e.json") == {"a": 2e-6, "b": 1e200}


@pytest.mark.parametrize("report", ["", "3", "[]", "{}", '{"rows": [{}]}', report_of()])
def test_what_is_no_report_of_errors(report):
    with pytest.raises(ArgumentError, match=r"e.json is no report of rounding errors"):
        errors_of(report, "e.json")
