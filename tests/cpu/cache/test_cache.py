"""The compile cache: what is kept and found again, and what is not trusted."""

import os
import subprocess
import sys
import time
import warnings

import evaluating
import numpy as np
import pytest
from evaluating import build, f32

import xlakit as xla
from xlakit import compile_cache as cache
from xlakit.cpu import compiler
from xlakit.cpu.cache.cache_key import program_key
from xlakit.cpu.program import Program

pytestmark = pytest.mark.usefixtures("folder")


def program(step=1.0, size=4):
    return build(lambda x: xla.tanh(x * 2.0) + step, f32(size))


def entries(folder):
    return sorted(folder.glob("*.xlakit"))


def test_a_program_is_compiled_once(folder, compiles):
    x = np.linspace(-1, 1, 4, dtype=np.float32)
    first, second = (xla.compile(program())(x) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert len(compiles) == 1
    assert len(entries(folder)) == 1
    xla.compile(program(2.0))
    assert len(compiles) == 2


def test_it_can_be_left_out(folder, compiles, monkeypatch):
    xla.compile(program(), cache=False)
    assert not folder.exists()
    monkeypatch.setenv("XLAKIT_CACHE", "off")
    xla.compile(program())
    assert not folder.exists()
    assert len(compiles) == 2
    monkeypatch.setenv("XLAKIT_CACHE", "perhaps")
    with pytest.raises(xla.ArgumentError, match="XLAKIT_CACHE is 'perhaps'"):
        xla.compile(program())


TEXT = """
HloModule first

scale (x: f32[4]) -> f32[4] {
  x = f32[4] parameter(0)
  c = f32[4] constant({1, 2, 3, 4})
  ROOT product = f32[4] multiply(x, c), metadata={op_name="here" source_file="a.py" source_line=1}
}

ENTRY main (a: f32[4]) -> f32[4] {
  a = f32[4] parameter(0)
  b = f32[4] call(a), to_apply=scale
  ROOT c = f32[4] clamp(a, b, a)
}
"""


def key_of(text, replicas=1, partitions=1):
    return program_key(xla.HloModule.from_text(text), replicas, partitions)


@pytest.mark.parametrize(
    "change", [("first", "second"), ("scale", "other"), ("a.py", "b.py"), ("product", "p.1"), ('op_name="here" ', "")]
)
def test_names_and_places_do_not_matter(change):
    assert key_of(TEXT.replace(*change)) == key_of(TEXT)


@pytest.mark.parametrize(
    "change",
    [
        ("{1, 2, 3, 4}", "{1, 2, 3, 5}"),
        ("f32", "f16"),
        ("[4]", "[5]"),
        ("multiply(x, c)", "multiply(c, x)"),
        ("multiply", "divide"),
        ("clamp(a, b, a)", "clamp(b, a, a)"),
        ("HloModule first", "HloModule first, input_output_alias={ {}: (0, {}, may-alias) }"),
        ("HloModule first", "HloModule first, replica_count=2"),
        ("to_apply=scale", 'to_apply=scale, frontend_attributes={a="b"}'),
    ],
)
def test_what_matters_makes_another_key(change):
    if change[0] == "[4]":
        change_constant = ("{1, 2, 3, 4}", "{1, 2, 3, 4, 5}")
        text = TEXT.replace(*change_constant)
    else:
        text = TEXT
    assert key_of(text.replace(*change)) != key_of(TEXT)


def test_options_make_another_key(monkeypatch):
    keys = {key_of(TEXT), key_of(TEXT, 2), key_of(TEXT, 1, 2)}
    monkeypatch.setenv("XLAKIT_FUEL", "3")
    keys.add(key_of(TEXT))
    monkeypatch.setenv("XLAKIT_DISABLE_PASSES", "dead-code")
    keys.add(key_of(TEXT))
    assert len(keys) == 5


def test_names_matter_where_python_may_tell_them(compiles):
    def call(line):
        text = f"""HloModule m
ENTRY main (a: f32[2]) -> f32[2] {{
  a = f32[2] parameter(0)
  ROOT r = f32[2] custom-call(a), custom_call_target="fails", metadata={{source_file="a.py" source_line={line}}}
}}"""
        functions = {"fails": lambda x: 1 / 0}
        return xla.compile(xla.HloModule.from_text(text), custom_calls=functions)

    for line in (3, 4, 3):
        with pytest.raises(xla.ExecutionError, match="division by zero") as caught:
            call(line)([1, 2])
        assert caught.value.location.line == line
    assert len(compiles) == 2


@pytest.mark.parametrize("target", ["Sharding", "MoveToHost", "lapack_spotrf_ffi"])
def test_names_of_calls_that_cannot_fail_do_not_matter(target):
    text = f"""HloModule m
ENTRY main (a: f32[2,2]) -> f32[2,2] {{
  a = f32[2,2] parameter(0)
  ROOT r = f32[2,2] custom-call(a), custom_call_target="{target}", metadata={{source_file="a.py" source_line=3}}
}}"""

    def key(text, **options):
        calls = [target] if target.startswith("lapack") else []
        return program_key(xla.HloModule.from_text(text), 1, options.get("partitions", 1), (), calls)

    moved = text.replace("source_line=3", "source_line=4")
    assert key(text) == key(moved)
    assert key(text) != key(text.replace(target, "fails")) != key(moved.replace(target, "fails"))
    # For several devices a hint may become a collective, whose error of a deadlock has its line.
    if target == "Sharding":
        assert key(text, partitions=2) != key(moved, partitions=2)


def test_host_steps_are_found_again(compiles):
    def run():
        built = build(lambda x: xla.all_reduce(xla.custom_call(x.builder, "twice", [x], f32(2)), xla.add), f32(2))
        made = xla.compile(built, num_replicas=2, custom_calls={"twice": lambda x: x * 2})
        return [r.tolist() for r in made.execute_replicated([[[1, 2]], [[3, 4]]])]

    assert run() == run() == [[8, 12]] * 2
    assert len(compiles) == 1


def test_the_more_entries_there_are_the_more_seldom_they_are_listed(folder, monkeypatch):
    """Else the time of each save is in proportion to their number."""
    listed = []
    evict = cache._evict
    monkeypatch.setattr(cache, "_evict", lambda *given, **named: listed.append(evict(*given, **named)) or listed[-1])
    monkeypatch.setattr(cache, "_FOUND_PER_SAVE", 1)
    for number in range(70):
        cache.save(f"key-{number}", cache.Entry({}, {}))
    assert listed == [1, 2, 4, 8, 16, 32, 64]
    assert len(entries(folder)) == 70


def test_large_constants_stay_in_the_program(folder, compiles):
    values = np.arange(300_000, dtype=np.float32)
    built = build(lambda x: xla.constant(x.builder, values) + x, f32())
    first, second = (xla.compile(built)(np.float32(1)) for _ in range(2))
    np.testing.assert_array_equal(first, values + 1)
    np.testing.assert_array_equal(first, second)
    assert len(compiles) == 1
    assert entries(folder)[0].stat().st_size < values.nbytes / 4


def test_other_constants_are_kept_with_the_code(folder, compiles):
    """A batch of images in a program made each process read the program again, for more than its code takes to load."""
    values = np.arange(100_000, dtype=np.float32)
    built = build(lambda x: xla.constant(x.builder, values) + x, f32())
    xla.compile(built)
    entry = cache.load(entries(folder)[0].stem)
    program = Program.from_entry(entry, lambda: pytest.fail("the program is read again"))
    assert any(np.array_equal(kept, values) for kept in program.constants)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:20],
        lambda data: data[:-1],
        lambda data: b"Y" + data[1:],
        lambda data: data[:50] + bytes([data[50] ^ 1]) + data[51:],
        lambda data: data[:-200] + bytes([data[-200] ^ 0x80]) + data[-199:],
    ],
)
def test_a_damaged_entry_is_made_again(folder, compiles, damage):
    x = np.ones(4, np.float32)
    expected = xla.compile(program())(x)
    (path,) = entries(folder)
    data = path.read_bytes()
    path.write_bytes(damage(data))
    with pytest.warns(cache.CacheWarning, match="is damaged"):
        np.testing.assert_array_equal(xla.compile(program())(x), expected)
    assert len(compiles) == 2
    assert path.read_bytes()[:8] == data[:8]
    xla.compile(program())
    assert len(compiles) == 2


def test_a_damaged_entry_is_gone_where_warnings_are_errors(folder):
    xla.compile(program())
    (path,) = entries(folder)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(cache.CacheWarning, match="is damaged"):
        xla.compile(program())
    xla.compile(program())


def test_an_entry_under_another_name_is_damaged(folder):
    xla.compile(program())
    (first,) = entries(folder)
    other = program_key(program(2.0).to_module(), 1, 1)
    (folder / f"{other}.xlakit").write_bytes(first.read_bytes())
    os.chmod(folder / f"{other}.xlakit", 0o600)
    with pytest.warns(cache.CacheWarning, match="another key"):
        result = xla.compile(program(2.0))(np.zeros(4, np.float32))
    assert result.tolist() == [2] * 4


def test_an_entry_that_does_not_fit_the_program_is_damaged(folder):
    module = program().to_module()
    key = program_key(module, 1, 1)
    cache.save(key, cache.Entry({"constants": [["f32", [3], [7, 7]]]}, {"object": b"x"}))
    with pytest.warns(cache.CacheWarning, match="does not fit"):
        xla.compile(module)


def test_what_a_proto_cannot_hold_is_not_kept_and_not_called_damaged(folder, compiles, monkeypatch):
    # The call that Python answers fails as the program runs, and its module as it is read back.
    def fails(_):
        raise ValueError("no")

    def refuse(_):
        raise xla.ShapeError("a slice has another size")

    module = xla.HloModule.from_text(
        'HloModule m\nENTRY e { p = f32[4] parameter(0)  ROOT r = f32[4] custom-call(p), custom_call_target="fails" }'
    )
    with monkeypatch.context() as patched, warnings.catch_warnings():
        patched.setattr("xlakit.cpu.program._Deferred.module", property(refuse))
        warnings.simplefilter("error")
        for _ in range(2):
            with pytest.raises(xla.ExecutionError, match="no"):
                xla.compile(module, custom_calls={"fails": fails})(np.zeros(4, np.float32))
    assert len(compiles) == 2
    assert entries(folder) == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with pytest.raises(xla.ExecutionError, match="no"):
                xla.compile(module, custom_calls={"fails": fails})(np.zeros(4, np.float32))
    assert len(compiles) == 3


def test_only_the_user_can_read_and_write(folder):
    os.umask(before := os.umask(0))
    previous = os.umask(0)
    try:
        xla.compile(program())
    finally:
        os.umask(previous)
    assert before == previous
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in entries(folder)} == {0o600}


def test_what_others_can_write_is_not_run(folder, compiles):
    xla.compile(program())
    (path,) = entries(folder)
    path.chmod(0o666)
    with pytest.warns(cache.CacheWarning, match="others than you can write"):
        xla.compile(program())
    path.chmod(0o600)
    folder.chmod(0o777)
    with pytest.warns(cache.CacheWarning, match="others than you can write"):
        xla.compile(program())
    assert len(compiles) == 3


def test_a_link_is_not_followed(folder, tmp_path, compiles):
    xla.compile(program())
    (path,) = entries(folder)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.warns(cache.CacheWarning, match="cannot be read"):
        xla.compile(program())
    assert len(compiles) == 2


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_file_is_not_read(folder, compiles, make):
    xla.compile(program())
    (path,) = entries(folder)
    path.unlink()
    make(path)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", cache.CacheWarning)
        xla.compile(program())
    assert "it is no file" in str(said[0].message)
    assert len(compiles) == 2


def test_a_directory_that_cannot_be_made_is_a_warning(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XLAKIT_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.warns(cache.CacheWarning, match="nothing can be stored"):
        xla.compile(program())(np.zeros(4, np.float32))


def test_an_edited_compiler_keeps_nothing(folder, monkeypatch):
    monkeypatch.setattr(compiler, "compiler_has_changed", lambda: True)
    xla.compile(program())
    assert not entries(folder)


def test_what_was_not_used_for_longest_goes_first(folder, monkeypatch):
    blob = {"object": bytes(1000)}
    for name in "abcd":
        cache.save(name, cache.Entry({}, blob))
    old = time.time() - 1000
    for age, name in enumerate("dcba"):
        os.utime(folder / f"{name}.xlakit", (old + age, old + age))
    size = (folder / "a.xlakit").stat().st_size
    # Being read makes d the youngest.
    assert cache.load("d") is not None
    monkeypatch.setenv("XLAKIT_CACHE_LIMIT", str(4 * size))
    cache.save("e", cache.Entry({}, blob))
    assert [path.stem for path in entries(folder)] == ["a", "d", "e"]
    monkeypatch.setenv("XLAKIT_CACHE_LIMIT", str(size - 1))
    cache.save("f", cache.Entry({}, blob))
    assert "f" not in [path.stem for path in entries(folder)]
    monkeypatch.setenv("XLAKIT_CACHE_LIMIT", "lots")
    with pytest.raises(xla.ArgumentError, match="XLAKIT_CACHE_LIMIT"):
        cache.save("g", cache.Entry({}, blob))


def test_what_nobody_finished_is_removed(folder):
    cache.save("a", cache.Entry({}, {}))
    for name, age in (("new-old", 7200), ("new-young", 10)):
        (folder / name).write_bytes(b"part")
        os.utime(folder / name, (time.time() - age,) * 2)
    cache.save("b", cache.Entry({}, {}))
    assert sorted(path.name for path in folder.iterdir()) == ["a.xlakit", "b.xlakit", "new-young"]


def test_sections_come_back_as_they_were():
    sections = {"empty": b"", "odd": b"abc", "long": bytes(range(256)) * 5}
    cache.save("k", cache.Entry({"text": "ä", "list": [1, [2]]}, sections))
    found = cache.load("k")
    assert found.fields == {"text": "ä", "list": [1, [2]]}
    assert {name: bytes(data) for name, data in found.sections.items()} == sections
    assert cache.load("other") is None


CHILD = """
import sys
import numpy as np
import xlakit as xla
from evaluating import build, f32
for step in range(6):
    made = xla.compile(build(lambda x: x * 2.0 + float(step), f32(3)))
    assert made(np.ones(3, np.float32)).tolist() == [2 + step] * 3
print("good")
"""


def test_many_processes_share_it(folder):
    tests = os.path.dirname(evaluating.__file__)
    environment = {**os.environ, "PYTHONWARNINGS": "error", "PYTHONPATH": tests, "XLAKIT_CACHE_LIMIT": "40K"}
    children = [
        subprocess.Popen([sys.executable, "-c", CHILD], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    for child in children:
        out, errors = child.communicate(timeout=120)
        assert (out, errors) == (b"good\n", b"")
    assert not list(folder.glob("new-*"))


def test_usage_and_clearing(folder):
    assert cache.usage() == cache.Usage(folder, 0, 0, 1 << 30)
    xla.compile(program())
    used = cache.usage()
    assert (used.entries, used.bytes) == (1, entries(folder)[0].stat().st_size)
    assert cache.clear() == 1
    assert cache.usage().entries == 0
