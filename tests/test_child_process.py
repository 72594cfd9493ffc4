"""Answers of child processes."""

import fcntl
import os
import resource
import signal
import subprocess

import pytest

from xlakit.child_process import Child, Limits, Unanswered, answer_of, send


def test_a_process_with_many_files_gets_answers():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    low, write = os.pipe()
    descriptor = fcntl.fcntl(low, fcntl.F_DUPFD, 1500)
    try:
        with os.fdopen(write, "wb") as stream:
            send(stream, {"answer": 42})
        assert answer_of(descriptor, os.getpid(), Limits()) == {"answer": 42}
        with pytest.raises(Unanswered, match="ended"):
            answer_of(descriptor, os.getpid(), Limits())
    finally:
        os.close(low)
        os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_process_that_has_ended_is_not_waited_for_while_its_own_child_keeps_the_pipe():
    command = ["sh", "-c", "sleep 60 & exit 3"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    try:
        with pytest.raises(Unanswered, match="ended"):
            answer_of(process.stdout.fileno(), process.pid, Limits(seconds=2), lambda: process.poll() is not None)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize(("sleeps", "why"), [("60", "timed out"), ("0", "ended")])
def test_a_child_that_reads_no_request_is_not_waited_for(tmp_path, monkeypatch, sleeps, why):
    (tmp_path / "deaf.py").write_text(f"import time\ntime.sleep({sleeps})\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    child = Child("deaf")
    try:
        with pytest.raises(Unanswered, match=why):
            child.ask(bytes(1 << 20), Limits(seconds=1 if why == "timed out" else 20))
    finally:
        child.end()
