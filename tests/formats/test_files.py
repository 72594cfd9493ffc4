"""Files are written as a whole or not at all."""

import os
import stat

import pytest

from xlakit.formats import files
from xlakit.formats.files import whole_file, write_whole


def test_a_file_that_cannot_be_written_to_its_end_leaves_the_old_one(tmp_path):
    path = tmp_path / "a.hlo"
    write_whole(path, "old")
    with pytest.raises(OSError, match="No space left") as error, whole_file(path) as file:
        file.write(b"half")
        raise OSError(28, "No space left on device")
    assert error.value.filename == str(path)
    with pytest.raises(KeyboardInterrupt), whole_file(tmp_path / "new.hlo"):
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_links_modes_and_pipes_stay(tmp_path):
    path, link, pipe = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    path.write_text("old")
    path.chmod(0o640)
    link.symlink_to(path)
    write_whole(link, "new")
    assert link.is_symlink()
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, b"heard")
    assert os.read(reader, 9) == b"heard"
    os.close(reader)


def test_a_folder_that_is_not_there_is_named_by_the_path(tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        write_whole(tmp_path / "none" / "a", "")
    assert error.value.filename == str(tmp_path / "none" / "a")
    assert "None" not in str(error.value)


def test_an_error_of_another_file_keeps_its_path(tmp_path):
    with pytest.raises(FileNotFoundError) as error, whole_file(tmp_path / "a"):
        (tmp_path / "other").read_bytes()
    assert error.value.filename == str(tmp_path / "other")


def test_other_names_of_a_file_keep_what_is_written(tmp_path):
    path, other, loop = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    path.write_text("old")
    other.hardlink_to(path)
    write_whole(path, "new")
    assert other.read_text() == "new"
    loop.symlink_to(loop)
    with pytest.raises(OSError, match="symbolic links"):
        write_whole(loop, "")
    with (tmp_path / "out").open("wb") as out:
        write_whole(f"/proc/self/fd/{out.fileno()}", "it")
        assert os.fstat(out.fileno()).st_size == 2


def test_what_a_killed_process_has_left_is_removed(tmp_path):
    left, new, other = (tmp_path / f".xlakit-{name}" for name in ("0123456789abcdef", "fedcba9876543210", "notes"))
    for path in (left, new, other):
        path.write_text("half")
    for path in (left, other):
        os.utime(path, (0, 0))
    with whole_file(tmp_path / "a"):
        assert not left.exists()
        assert new.exists()
        assert other.exists()
        (written,) = set(tmp_path.glob(".xlakit-*")) - {new, other}
        # A writer that takes long, as another process sees it.
        os.utime(written, (0, 0))
        files._cleaned.clear()
        write_whole(tmp_path / "b", "")
        assert written.exists()
