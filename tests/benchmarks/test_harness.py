"""The benchmarks' own arithmetic, and one row from end to end."""

import json
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest

pytest.importorskip("jax")

from benchmarks.__main__ import main, parse
from benchmarks.check import difference
from benchmarks.harness import Plan, Row, Status, Timing, geometric_mean, measure
from benchmarks.machine import Machine
from benchmarks.peers import NumpyPeer, Prepared, XlakitPeer, XlaPeer
from benchmarks.program import Bound, Program
from benchmarks.reports.picture import picture
from benchmarks.reports.report import Report, to_markdown, write
from benchmarks.workloads import GROUPS, WORKLOADS

MACHINE = Machine("processor", "system", 2, bandwidth=10e9, flops=100e9)
BY_NAME = {w.name: w for w in WORKLOADS}


def row(name, group, bound=Bound.NOTHING, **seconds):
    timings = {peer: Timing(seconds=value) for peer, value in seconds.items()}
    return Row(name, group, bound, timings=timings, traffic=10**9, flops=1e9)


class Distorted(XlakitPeer):
    """xlakit, if it were wrong in one element."""

    def prepare(self, workload, program):
        prepared = super().prepare(workload, program)
        return replace(prepared, fetch=lambda result: [self.distort(a) for a in prepared.fetch(result)])

    @staticmethod
    def distort(array):
        copy = array.copy()
        copy.flat[-1] += 1
        return copy


class Failing:
    name = "xlakit"

    def prepare(self, workload, program):
        raise NotImplementedError("no such operation\nand more")


def test_geometric_mean():
    assert geometric_mean([0.5, 2.0]) == pytest.approx(1)
    assert geometric_mean([8, None, 2]) == pytest.approx(4)
    assert geometric_mean([None]) is None


def test_report_means_and_ratios():
    rows = [
        row("a", "one", xlakit=1, xla=2, numpy=0.5),
        row("b", "one", xlakit=1, xla=8),
        row("c", "two", xlakit=3, xla=1),
    ]
    rows.append(Row("d", "two", Bound.NOTHING, Status.ERROR, "xlakit: no"))
    report = Report(MACHINE, "cpu", ["xla", "numpy"], rows)
    assert [r.ratio_to_xla for r in rows] == [0.5, 0.125, 3, None]
    assert [r.ratio_to_best for r in rows] == [2, 0.125, 3, None]
    assert report.means()[0] == ("one", 2, pytest.approx(0.25), pytest.approx(0.5))
    assert report.means()[1] == ("two", 1, pytest.approx(3), pytest.approx(3))
    assert report.means()[2][:2] == ("all", 3)
    assert report.means()[2][2] == pytest.approx((0.5 * 0.125 * 3) ** (1 / 3))
    assert not report.ok


def test_ratios_are_of_the_same_round():
    found = row("a", "g", xlakit=2, xla=4, numpy=3)
    # The machine is slow from the second round on; the medians of two peers can then be of different rounds.
    for name, samples in {"xlakit": [1, 4, 4], "xla": [2, 8, 2], "numpy": [2, 2, 16]}.items():
        found.timings[name].samples = samples
    assert found.ratio_to_xla == 0.5
    assert found.ratio_to_best == 0.5
    found.timings["numpy"].samples = [0.5, 2, 16]
    assert found.ratio_to_best == 2


def test_jax_on_xlakit_is_held_against_xlakit():
    rows = [
        row("near", "g", xlakit=1, jax=1.02, xla=2),
        row("far", "g", xlakit=1, jax=1.1, xla=0.5),
        row("short", "g", xlakit=1e-5, jax=1, xla=1),
        row("not_run", "g", xlakit=1, xla=1),
    ]
    report = Report(MACHINE, "cpu", ["xla", "jax"], rows)
    assert report.through_jax() == (2, 1, pytest.approx((1.02 * 1.1) ** 0.5))
    # It is no peer to be the best of.
    assert [r.ratio_to_best for r in rows] == [0.5, 2, 1e-5, 1]
    page = to_markdown(report)
    assert (
        "JAX on xlakit: of 2 rows in which xlakit takes more than 100 us, 1 take at most 5 % more than xlakit" in page
    )
    assert "jax / xlakit" in page and "1.10" in page
    assert report.to_json()["through_jax"]["close"] == 1
    assert report.to_itself() is None and "once more" not in page
    report.rows.append(row("again", "g", xlakit=1, again=1.01, xla=0.5))
    assert report.to_itself() == (1, 1, pytest.approx(1.01))
    assert "xlakit once more: of 1 rows" in to_markdown(report) and report.rows[-1].ratio_to_best == 2
    without = Report(MACHINE, "cpu", ["xla"], rows[3:])
    assert without.through_jax() is None and "jax / xlakit" not in to_markdown(without)


def test_percent_of_the_machine():
    report = Report(MACHINE, "cpu", ["xla"], [])
    assert report.percent(row("a", "g", Bound.MEMORY, xlakit=0.2, xla=1)) == pytest.approx(50)
    assert report.percent(row("a", "g", Bound.ARITHMETIC, xlakit=0.1, xla=1)) == pytest.approx(10)
    assert report.percent(row("a", "g", xlakit=0.1, xla=1)) is None
    assert report.percent(row("a", "g", Bound.MEMORY, xla=1)) is None


def test_report_is_written(tmp_path):
    pytest.importorskip("matplotlib")
    report = Report(MACHINE, "cpu", ["xla"], [row("quick_one", "g", xlakit=1e-3, xla=2e-3)], ["a note"])
    report.rows.append(Row("broken", "g", Bound.NOTHING, Status.WRONG, "xlakit: too far"))
    files = write(report, tmp_path)
    assert [f.name for f in files] == ["report.json", "report.md", "report.png"]
    assert files[2].read_bytes().startswith(b"\x89PNG")
    data = json.loads(files[0].read_text())
    assert data["rows"][0]["ratio_to_xla"] == 0.5
    assert data["rows"][1]["status"] == "WRONG"
    page = files[1].read_text()
    assert page == to_markdown(report)
    assert "broken **WRONG**" in page and "too far" in page and "a note" in page


@pytest.mark.parametrize(
    ("actual", "expected", "fault"),
    [
        (np.float32([1, 2]), np.float32([1, 2]), ""),
        (np.float32([1, 2.00001]), np.float32([1, 2]), ""),
        (np.float32([1, 2.01]), np.float32([1, 2]), "1 of 2 elements differ, the first at [1]"),
        (np.float32([np.nan, np.inf]), np.float32([np.nan, np.inf]), ""),
        (np.float32([np.nan, 1]), np.float32([1, 1]), "1 of 2"),
        (np.float32([1, 1]), np.float32([np.nan, 1]), "1 of 2"),
        (np.float32([np.inf, 1]), np.float32([-np.inf, 1]), "1 of 2"),
        (np.float32([1e30, 1]), np.float32([np.inf, 1]), "1 of 2"),
        (np.int32([1, 2]), np.int32([1, 3]), "1 of 2"),
        (np.int64([1, 2]), np.int32([1, 2]), ""),
        (np.zeros((2, 3), np.float32), np.zeros((3, 2), np.float32), "shape [2, 3] instead of [3, 2]"),
        (np.complex64([1 + 1j]), np.complex64([1 + 1.1j]), "1 of 1"),
        (np.float32([]), np.float32([]), ""),
    ],
)
def test_difference(actual, expected, fault):
    found = difference([actual], [expected], Program([], jax=None))
    assert found.startswith(fault) and bool(found) == bool(fault)


def test_difference_of_results_that_are_missing():
    assert difference([], [np.zeros(1)], Program([], jax=None)) == "0 results instead of 1"


def test_difference_of_a_few_integers_may_be_allowed():
    expected = np.arange(100)
    actual = np.where(expected == 7, 0, expected)
    assert difference([actual], [expected], Program([], jax=None))
    assert not difference([actual], [expected], Program([], jax=None, differing=0.01))


def test_other_random_numbers_are_held_to_their_moments():
    rng = np.random.default_rng(0)
    program = Program([], jax=None, random=True)
    expected = rng.standard_normal(1000)
    other = rng.standard_normal(1000)
    assert difference([other], [expected], program)
    assert not difference([other], [expected], program, same_random=False)
    assert "mean" in difference([other + 1], [expected], program, same_random=False)
    assert "deviation" in difference([other * 2], [expected], program, same_random=False)


def test_one_row_with_the_interpreter():
    plan = Plan(quick=True, rounds=3)
    result = measure(BY_NAME["softmax"], XlaPeer(), XlakitPeer("interpreter"), [NumpyPeer()], plan)
    assert result.status is Status.OK and result.message == ""
    assert list(result.timings) == ["xlakit", "xla", "numpy"]
    assert all(len(t.samples) == 3 and t.seconds > 0 for t in result.timings.values())
    assert result.traffic == 2 * 24 * 40 * 4
    assert result.ratio_to_xla > 0
    assert result.timings["xlakit"].compile_seconds > 0 and result.timings["xla"].compile_seconds > 0
    assert result.timings["xla"].memory >= result.traffic


def test_a_wrong_result_is_not_timed():
    result = measure(BY_NAME["softmax"], XlaPeer(), Distorted("interpreter"), [], Plan(quick=True))
    assert result.status is Status.WRONG
    assert result.message.startswith("xlakit: 1 of 960 elements differ, the first at [23, 39]")
    assert all(t.seconds is None for t in result.timings.values())


def test_what_cannot_run_is_told():
    result = measure(BY_NAME["softmax"], XlaPeer(), Failing(), [], Plan(quick=True))
    assert (result.status, result.message) == (Status.ERROR, "xlakit: NotImplementedError: no such operation")


def test_another_peer_that_fails_is_a_note():
    class Broken(NumpyPeer):
        def prepare(self, workload, program):
            return Prepared(run=lambda: 1 / 0, fetch=list)

    result = measure(BY_NAME["softmax"], XlaPeer(), XlakitPeer("interpreter"), [Broken()], Plan(quick=True, rounds=0))
    assert result.status is Status.OK
    assert result.notes == ["numpy is left out: ZeroDivisionError: division by zero"]


def test_a_workload_is_the_same_each_time():
    first, second = (BY_NAME["black_scholes"].program(quick=True).arguments for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_workloads_have_names_of_their_own():
    assert len(BY_NAME) == len(WORKLOADS) >= 40
    assert set(GROUPS) >= {"matmul", "convolution", "models", "dispatch"}


def test_command_line(capsys, monkeypatch):
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC"):
        monkeypatch.setenv(variable, "1")
    choice = ["--only", "tiny_*", "--quick", "--backend", "interpreter", "--peers", "xla,numpy"]
    assert main([*choice, "--group", "dispatch"]) == 0
    assert "1 workloads: 1 ok" in capsys.readouterr().out
    assert main(["--only", "tiny_add", "--quick", "--backend", "missing", "--peers", "xla"]) == 1
    assert main(["--only", "nothing_of_that_name"]) == 2
    assert main(["--list", "--only", "tiny"]) == 0
    assert "dispatch: tiny_add" in capsys.readouterr().out


def test_jax_on_xlakit_agrees(tmp_path):
    # Which platforms JAX has is fixed when it starts.
    command = [sys.executable, "-m", "benchmarks", "--quick", "--only", "softmax", "--peers", "xla,jax"]
    folder = Path(__file__).parents[2]
    done = subprocess.run([*command, "--output", tmp_path], capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = json.loads((tmp_path / "report.json").read_text())["rows"]
    assert list(found["timings"]) == ["xlakit", "xla", "jax"]


def test_training_curves():
    from benchmarks.jax_training import Training, agree, differences, report

    ours, theirs = [2.0] * 20, [2.0] * 9 + [2.00001] + [2.001] * 10
    assert differences([3, 1], [2, 1]) == [0.5, 0]
    assert agree(differences(ours, theirs))
    assert not agree(differences([2.001] * 20, [2.0] * 20))
    assert not agree(differences([*ours[:-1], float("nan")], theirs))
    runs = {"empty": {"xlakit": Training(ours, 4.0, 3.0, 0.01), "cpu": Training(theirs, 6.0, 5.0, 0.02)}}
    page = report(runs)
    assert "| empty | xlakit | 4.00 | 3.00 | 10.00 |" in page and "they agree" in page


def test_a_training_is_watched_step_by_step(monkeypatch):
    from benchmarks import jax_training

    def train(steps):
        return None, np.array([model.step(np.float32(number)) for number in range(steps)])

    # In the place of the example; what that learns on xlakit is tested in tests/jax.
    model = SimpleNamespace(step=lambda number: number / model.BATCH, train=train)
    monkeypatch.setitem(sys.modules, "language_model", model)
    monkeypatch.syspath_prepend("")
    training = jax_training.train(3, blocks=1, batch=2)
    assert training.losses == [0, 0.5, 1] and model.BLOCKS == 1
    assert 0 < training.begin <= training.seconds and 0 < training.step < training.seconds


def test_trainings_run_in_processes_of_their_own(capsys, monkeypatch):
    from benchmarks import jax_training

    seen = []

    def run(command, *, env, **_):
        seen.append((env["JAX_PLATFORMS"], env["XLAKIT_CACHE_DIR"], env["JAX_COMPILATION_CACHE_DIR"]))
        assert command[1:] == ["-m", "benchmarks.jax_training", "--here", "--steps=3", "--blocks=2", "--batch=16"]
        found = {"losses": [3.0, 2.0, 1.0], "seconds": 2.5, "begin": 2.0, "step": 0.25}
        return SimpleNamespace(stdout="a warning\n" + json.dumps(found) + "\n")

    monkeypatch.setattr(jax_training.subprocess, "run", run)
    assert jax_training.main(["--steps", "3"]) == 0
    assert [platform for platform, *_ in seen] == ["xlakit", "cpu"] * 2
    assert len({caches[1:] for caches in seen}) == 1
    assert "| full | cpu | 2.50 | 2.00 | 250.00 |" in capsys.readouterr().out


@pytest.mark.parametrize("options", [["--peers", "numpy"], ["--peers", "xla,other"], ["--rounds", "0"]])
def test_options_that_are_refused(options):
    with pytest.raises(SystemExit):
        parse(options)


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is optional")
def test_a_row_with_pytorch():
    from benchmarks.peers import TorchPeer

    peers = [TorchPeer(compiled=False)]
    result = measure(BY_NAME["max_pool_gradient"], XlaPeer(), XlakitPeer("interpreter"), peers, Plan(True, 0))
    assert result.status is Status.OK and result.notes == []
    assert "torch" in result.timings


# -- the picture -------------------------------------------------------------------------------------


def bars(svg):
    """(x, width) of each bar of a picture, and where its middle line is."""
    root = ElementTree.fromstring(svg)
    name = "{http://www.w3.org/2000/svg}"
    rects = [(float(r.get("x")), float(r.get("width"))) for r in root.findall(f"{name}rect") if r.get("x")]
    return rects, float(root.find(f"{name}line").get("x1")), [t.text for t in root.findall(f"{name}text")]


def test_the_picture_says_how_much_quicker_or_slower_each_group_is():
    rows = [row("a", "sums", xlakit=1.0, xla=2.0), row("b", "sorts & more", xlakit=4.0, xla=2.0)]
    svg = picture(Report(MACHINE, "cpu", ["xla"], rows).to_json())
    (quicker, slower, both), middle, texts = bars(svg)
    assert quicker[0] + quicker[1] == pytest.approx(middle, abs=0.2)
    assert slower[0] == pytest.approx(middle, abs=0.2)
    # Twice as quick is as long as twice as slow, and together they are 1.
    assert quicker[1] == pytest.approx(slower[1], abs=0.2)
    assert both[1] < 0.2
    assert {"0.50", "2.00", "1.00", "sums (1)", "sorts & more (1)", "all (2)"} <= set(texts)
    assert any("processor, 2 threads" in text for text in texts)


def test_the_picture_of_an_earlier_run(tmp_path, capsys):
    rows = [row("a", "sums", xlakit=1.0, xla=2.0)]
    path = tmp_path / "report.json"
    path.write_text(json.dumps(Report(MACHINE, "cpu", ["xla"], rows).to_json()))
    assert main(["--chart", str(tmp_path / "chart.svg"), "--from", str(path)]) == 0
    assert "0.50" in (tmp_path / "chart.svg").read_text()
    path.write_text(json.dumps(Report(MACHINE, "cpu", ["xla"], [row("a", "sums")]).to_json()))
    assert main(["--chart", str(tmp_path / "none.svg"), "--from", str(path)]) == 1
    assert "no times" in capsys.readouterr().err
    assert not (tmp_path / "none.svg").exists()
    with pytest.raises(SystemExit):
        parse(["--chart", "x.svg", "--quick"])
