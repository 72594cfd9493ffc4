"""Answers of child processes."""

import fcntl
import os
import resource

import pytest

from xlakit.child_process import Limits, Unanswered, answer_of, send


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
