"""LLVM's passes, in a process that has run them many times."""

import time

from xlakit.cpu.llvm import Effort, engine

_FUNCTION = "define void @f{}(ptr %x) {{\n  store i32 1, ptr %x\n  ret void\n}}\n"


def test_after_hundreds_of_modules_one_takes_no_longer_than_at_first():
    """What runs passes must not keep anything of earlier runs: each pass would go through it for each function."""
    text = "".join(map(_FUNCTION.format, range(10)))

    def seconds(repeats):
        times = []
        for _ in range(repeats):
            begin = time.thread_time()
            engine.optimized_text(text, Effort.ALL)
            times.append(time.thread_time() - begin)
        return min(times)

    seconds(3)
    first = seconds(10)
    seconds(300)
    assert seconds(10) < 3 * first
