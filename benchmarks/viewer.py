"""``python -m benchmarks.viewer``: how large a page of ``xlakit view`` is, how fast it opens, and how it scrolls.

Chromium, driven by Selenium, opens the page of a chain of element-wise instructions, with all passes and alone, and
scrolls it in two ways: as a person reads, a hundred pixels with each frame, and as a person drags, through all of it.
A frame is the time between two frames that the browser shows, where 17 ms is a screen's 60 in a second; work is the
processor time of the page's thread for it, and for opening (parsing, scripts, styles, layout, painting), which other
processes do not change.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from xlakit.ir.instruction import HloModule
from xlakit.tools.view.stages import view_module

_ARGUMENTS: Final = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1400,900")
# The time between frames while the list of the program scrolls, by pixels with each or, without them, to its end.
_SCROLL: Final = """
const [pixels, frames, done] = arguments;
const rows = document.querySelector(".rows.program");
rows.scrollTop = 0;
const step = pixels || (rows.scrollHeight - rows.clientHeight) / frames;
const times = [];
let at = 0, last;
function next(now) {
  if (last !== undefined) times.push(now - last);
  last = now;
  if (++at > frames) return done(times);
  rows.scrollTop = step * at;
  requestAnimationFrame(next);
}
requestAnimationFrame(next);
"""
_READY: Final = """
const done = arguments[0];
const until = () => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now())));
if (document.documentElement.dataset.ready) until(); else addEventListener("load", until);
"""
_FRAMES: Final = 240


@dataclass(frozen=True, slots=True)
class Figures:
    """What is measured of a page: sizes in bytes, times in milliseconds; of frames the median, and 95% are below."""

    size: int
    opening: float
    opening_work: float
    frames: tuple[tuple[float, float], ...]
    work: tuple[float, ...]


def chain(count: int) -> HloModule:
    """A program of so many instructions, each of which uses the one before and an earlier one."""
    lines = ["v0 = f32[16]{0} parameter(0)"]
    for number in range(1, count):
        opcode = ("add", "multiply", "maximum", "subtract")[number % 4]
        metadata = f'metadata={{op_name="f/{opcode}" source_file="model.py" source_line={number % 97 + 1}}}'
        operands = f"v{number - 1}, v{number // 2}"
        lines.append(f"v{number} = f32[16]{{0}} {opcode}({operands}), {metadata}")
    lines[-1] = f"ROOT {lines[-1]}"
    return HloModule.from_text("HloModule chain\n\nENTRY main {\n  " + "\n  ".join(lines) + "\n}\n")


def chromium() -> Any:
    """A browser without a window. Raises ImportError without Selenium, OSError without Chromium and its driver."""
    from selenium import webdriver  # pyright: ignore[reportMissingImports]

    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        raise OSError("no Chromium with its driver (Debian: chromium, chromium-driver)")
    options = webdriver.ChromeOptions()
    for argument in _ARGUMENTS:
        options.add_argument(argument)
    options.binary_location = program
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    made = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    # Frames take long on a busy machine.
    made.set_script_timeout(300)
    return made


def measured(browser: Any, page: Path) -> Figures:
    """Open a page, the first one of the browser, and scroll it."""
    browser.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    browser.get(page.as_uri())
    opening = browser.execute_async_script(_READY)
    opening_work = _work(browser)
    frames: list[tuple[float, float]] = []
    work: list[float] = []
    for pixels in (100, 0):
        before = _work(browser)
        times = sorted(browser.execute_async_script(_SCROLL, pixels, _FRAMES))
        work.append((_work(browser) - before) / _FRAMES)
        frames.append((statistics.median(times), times[len(times) * 95 // 100]))
    return Figures(page.stat().st_size, opening, opening_work, tuple(frames), tuple(work))


def _work(browser: Any) -> float:
    """Milliseconds of the processor that the page's thread has used so far."""
    browser.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    metrics = browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return 1e3 * next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog="python -m benchmarks.viewer", description=(__doc__ or "").split("\n\n", 1)[0]
    )
    parser.add_argument("sizes", nargs="*", type=int, default=[1_000, 10_000, 100_000], help="numbers of instructions")
    parser.add_argument("--without-passes", action="store_true", help="the pages of the programs alone")
    options = parser.parse_args(arguments)
    print("| instructions | file | opens in, work | reading: frame, 95%, work | dragging: frame, 95%, work |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="viewer-") as folder:
        for size in options.sizes:
            page = Path(folder) / f"{size}.html"
            view_module(chain(size), passes=not options.without_passes).save(page)
            browser = chromium()
            try:
                print(_row(size, measured(browser, page)), flush=True)
            finally:
                browser.quit()
    return 0


def _row(size: int, found: Figures) -> str:
    scrolled = (
        f"{median:.0f} ms, {most:.0f} ms, {work:.1f} ms"
        for (median, most), work in zip(found.frames, found.work, strict=True)
    )
    return " | ".join((f"| {size:,}", f"{found.size / 1e6:.2f} MB", _opened(found), *scrolled)) + " |"


def _opened(found: Figures) -> str:
    return f"{found.opening / 1e3:.2f} s, {found.opening_work / 1e3:.2f} s"


if __name__ == "__main__":
    sys.exit(main())
