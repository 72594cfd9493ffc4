"""Unknown names on the command lines of fuzz and of the benchmarks are errors of usage, which say what there is."""

import importlib

import pytest

_COMMANDS = (
    ("fuzz.math", ["expp"], "'expp'"),
    ("fuzz.special_functions", ["expp"], "'expp'"),
    ("fuzz.special_functions", ["--types", "f63"], "'f63'"),
    ("fuzz.minimax", ["expp"], "'expp'"),
    ("fuzz.compile_time", ["--only", "expp"], "'expp'"),
    ("fuzz.jax_versions", ["--environments", ".", "--version", "0.1.0"], "'0.1.0'"),
    ("fuzz.large", ["--only", "expp"], "'expp'"),
    ("fuzz.plain", ["--of", "large", "--only", "expp"], "'expp'"),
    ("fuzz.plain", ["--of", "large", "--number", "3"], "--only"),
    ("fuzz.plain", ["--what", "fusions"], "'fusions'"),
    ("fuzz.plain", ["no_such_file.hlo"], "no_such_file.hlo"),
    ("fuzz.compiled", ["--only", "expp"], "'expp'"),
    ("fuzz.jaxlib", ["--only", "expp"], "'expp'"),
    ("fuzz.faults", ["--only", "expp"], "'expp'"),
    ("fuzz.nets", ["--only", "expp"], "'expp'"),
    ("fuzz.bug_bank", ["--bug", "expp"], "'expp'"),
    ("benchmarks.sharded_bytes", ["expp"], "'expp'"),
    ("benchmarks.sharded_times", ["expp"], "'expp'"),
    ("benchmarks.first_second", ["expp"], "'expp'"),
    ("benchmarks.factorizations", ["expp"], "'expp'"),
)


@pytest.mark.parametrize("module, given, told", _COMMANDS)
def test_an_unknown_name_is_an_error_of_usage(capsys, module, given, told):
    name = f"{module}.__main__" if module.endswith("bug_bank") else module
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(name).main(given)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err
