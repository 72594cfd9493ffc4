"""The notebook and the programs of ``examples/xla_client`` print what they print on jaxlib 0.6.0."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "xla_client"
EXPECTED = {
    "xla_in_python": [
        "HloModule hypotenuse.7, entry_computation_layout={(f32[], f32[])->f32[]}",
        "the hypotenuse is 5.0",
        "f32[2,3]{1,0} f32[3]{0}",
        "[[ 5.  10.5 16. ]\n [ 6.5 12.  17.5]]",
        "standard deviations after: [1. 1. 1.]",
        "cube roots [ 1.  2.  3. 10.] after 16 steps",
        "branches: [[-1.0, -2.0, -3.0], [1.0, 4.0, 9.0], [2.0, 4.0, 6.0]]",
        "after three runs: [2.   1.   0.5  0.25] - the first buffer is gone: True",
        "operations in a product of 64 by 64: 524288",
    ],
    "mandelbrot": ["....:@=@@=@-..@@@@@@@@@", "points that never leave: 324"],
    "metropolis": ["accepted: 0.49", "covariance: [[1.0, 0.6], [0.6, 2.0]]"],
    "data_parallel": ["step 0: mean squared error 0.271", "step 200: mean squared error 0.087"],
    "derivatives": ["f(0.7, -1.3) = -1.585918", "d2f/dxdy(0.7, -1.3) = -0.962380"],
}


def test_all_programs_are_run_and_described():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(EXPECTED)
    readme = (EXAMPLES.parent / "README.md").read_text(encoding="utf-8")
    assert all(f"xla_client/{name}.py" in readme for name in EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_program_prints_its_results(name, capsys):
    runpy.run_path(str(EXAMPLES / f"{name}.py"))
    printed = capsys.readouterr().out
    for expected in EXPECTED[name]:
        assert expected in printed
