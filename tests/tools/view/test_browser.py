"""The page in a browser: Chromium, driven by Selenium, where both are installed."""

import os
import shutil
import stat
import threading
from itertools import pairwise

import pytest
from tools.view.programs import STEP, report_of, step
from tools.view.test_mesh import SHARDED

from benchmarks.viewer import chain, chromium
from xlakit.ir.instruction import HloModule
from xlakit.tools.view.comparison import view_difference
from xlakit.tools.view.profiles import roofline_of, seconds_of
from xlakit.tools.view.server import LivePage, server_of
from xlakit.tools.view.stages import view_module

pytest.importorskip("selenium.webdriver", reason="no Selenium to drive a browser with")
wait = pytest.importorskip("selenium.webdriver.support.wait", reason="no Selenium to drive a browser with")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="no Chromium with its driver")


@pytest.fixture(scope="module")
def browser():
    made = chromium()
    yield made
    made.quit()


@pytest.fixture
def opened(browser, tmp_path):
    """Opens a page; in the end the console must be empty."""

    def open_page(view, address=""):
        path = tmp_path / "page.html"
        view.save(path)
        assert stat.S_ISREG(os.stat(path).st_mode)
        browser.get(f"{path.as_uri()}{address}")
        # On a machine that does much else the page is there before its script has run.
        ready = "return document.documentElement.dataset.ready"
        wait.WebDriverWait(browser, 20).until(lambda page: page.execute_script(ready) == "true")
        # The rows are made once more when their size is known.
        browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
        return browser

    yield open_page
    assert not browser.get_log("browser")


@pytest.fixture(scope="module")
def view():
    with open("examples/hlo/mlp_train_step.hlo", encoding="utf-8") as file:
        return view_module(HloModule.from_text(file.read()), memory=True)


def find(browser, selector):
    return browser.find_element("css selector", selector)


def texts(browser, selector):
    # In one call: rows are made anew while the page is used.
    script = "return [...document.querySelectorAll(arguments[0])].map((e) => e.innerText)"
    return browser.execute_script(script, selector)


def press(browser, keys):
    find(browser, "body").send_keys(keys)


def test_clicks_and_keys_select(opened, view):
    browser = opened(view)
    browser.find_elements("css selector", ".program .row")[2].click()
    name = texts(browser, "#details h2")[0]
    assert f"{name} = " in texts(browser, ".row.selected")[0]
    press(browser, "j")
    assert texts(browser, "#details h2")[0] != name
    press(browser, "k")
    assert texts(browser, "#details h2")[0] == name
    (user, *_) = browser.find_elements("css selector", "#users button")
    expected = user.text.split()[0]
    user.click()
    assert texts(browser, "#details h2")[0] == expected
    assert expected in find(browser, ".row.selected").text
    browser.back()
    assert texts(browser, "#details h2")[0] == name


def test_callers_open(opened, view):
    browser = opened(view)
    closed = find(browser, '.row[aria-expanded="false"]')
    name = closed.text.split(" = ")[0].split()[-1]
    find(browser, '.row[aria-expanded="false"] .twisty').click()
    levels = [int(row.get_attribute("aria-level")) for row in browser.find_elements("css selector", ".program .row")]
    assert any(after - before == 1 and after > 2 for before, after in pairwise(levels))
    assert name in find(browser, '.row[aria-expanded="true"].selected').text
    press(browser, "\ue007")  # Enter
    assert not browser.find_elements("css selector", '.row[aria-expanded="true"].selected')


def test_search_finds_and_goes(opened, view):
    browser = opened(view)
    press(browser, "/")
    box = browser.switch_to.active_element
    assert box.get_attribute("id") == "search"
    box.send_keys("op:dot")
    count = int(find(browser, "#matches").text.split()[0])
    assert count > 1
    found = []
    for _ in range(count):
        find(browser, "#next").click()
        assert "dot(" in find(browser, ".row.selected.match").text
        found.append(texts(browser, "#details h2")[0])
    assert len(set(found)) == count
    assert find(browser, "#matches").text == f"{count} of {count} found"
    box.clear()
    box.send_keys("name:nothing-has-this-name")
    assert find(browser, "#matches").text == "0 found"


def test_an_address_shows_what_it_names(opened, view):
    browser = opened(view)
    press(browser, "]]jjjg")
    address = browser.execute_script("return location.hash")
    name = texts(browser, "#details h2")[0]
    assert "step=2" in address
    assert "view=graph" in address
    browser.get("about:blank")
    browser = opened(view, address)
    assert texts(browser, "#details h2")[0] == name
    assert find(browser, "#tab-graph").get_attribute("aria-selected") == "true"
    assert find(browser, '[aria-current="step"]').get_attribute("data-step") == "2"
    assert name in find(browser, ".node.center").text


def test_the_legend_of_changes_has_a_mark_for_each_kind(opened, view):
    browser = opened(view)
    next(tab for tab in browser.find_elements("css selector", "[role=tab]") if tab.text == "Changes").click()
    (legend,) = texts(browser, ".legend")
    assert "[object" not in legend
    assert len(browser.find_elements("css selector", ".legend > span")) >= 4


def test_controls_have_the_colors_of_the_page(opened, view):
    browser = opened(view)
    scheme = "return getComputedStyle(document.documentElement).colorScheme"
    was = find(browser, "html").get_attribute("data-theme") or "light"
    assert browser.execute_script(scheme) == was
    find(browser, "#theme").click()
    assert browser.execute_script(scheme) == ("light" if was == "dark" else "dark")


def test_changes_of_a_pass_are_side_by_side(opened, view):
    browser = opened(view, "#step=9&view=changes")
    assert find(browser, ".sides .changed, .sides .removed, .sides .added").is_displayed()
    assert "differ" in find(browser, ".legend [role=status]").text
    assert texts(browser, "#steps .rule")
    before = len(browser.find_elements("css selector", ".fold"))
    find(browser, ".fold").click()
    assert len(browser.find_elements("css selector", ".fold")) != before or before > 20


def test_details_name_the_rules_of_a_changed_line(opened):
    browser = opened(view_module(step()))
    script = "const at = app.program.steps.findIndex((s) => s.name === 'simplify'); app.go({ step: at }); return at"
    browser.execute_script(script)
    changed = [row for row in browser.find_elements("css selector", ".row.changed") if "multiply" in row.text]
    changed[0].click()
    (made,) = texts(browser, "#made-by li")
    assert "applied to same" in made
    assert made.split()[0] in texts(browser, "#steps .rule")[0]
    history = texts(browser, "#changed-in button")
    assert any(f"simplify: changed by {made.split()[0]}" in text for text in history)


def test_memory_rectangles_go_to_instructions(opened, view):
    browser = opened(view, "#view=memory")
    slices = browser.find_elements("css selector", ".slice")
    assert slices
    label = slices[0].get_attribute("aria-label")
    browser.execute_script("arguments[0].dispatchEvent(new MouseEvent('click'))", slices[0])
    assert find(browser, ".legend [role=status]").text == label
    assert find(browser, ".slice.selected").get_attribute("aria-label") == label
    assert texts(browser, "#details h2")[0] in label


def test_numbers_of_steps_below_memory_are_equally_far_apart(opened, view):
    browser = opened(view, "#view=memory")
    shown = browser.execute_script("return [...document.querySelectorAll('svg .faint')].map((e) => e.textContent)")
    numbers = [int(text) for text in shown if text.isdigit()]
    steps = {after - before for before, after in pairwise(numbers)}
    assert numbers[0] == 0
    assert 2 <= len(numbers) <= 9
    assert len(steps) == 1


def test_memory_rectangles_have_names_where_there_is_room(opened, view):
    browser = opened(view, "#view=memory")
    labels = browser.execute_script("return [...document.querySelectorAll('svg .inside')].map((e) => e.textContent)")
    assert any(label.endswith("KiB") for label in labels)
    script = """
      const boxes = [...document.querySelectorAll('svg .slice')].map((e) => e.getBoundingClientRect());
      const across = (t, b) => t.left >= b.left && t.right <= b.right + 1;
      const inside = (t, b) => across(t, b) && t.top >= b.top - 1 && t.bottom <= b.bottom + 2;
      return [...document.querySelectorAll('svg .inside')].filter((e) => {
        const text = e.getBoundingClientRect();
        return !boxes.some((box) => inside(text, box));
      }).map((e) => e.textContent);
    """
    assert browser.execute_script(script) == []


def test_a_step_without_changes_leads_to_the_next_with_some(opened, view):
    browser = opened(view, "#view=changes")
    assert not find(browser, ".sides").is_displayed()
    find(browser, ".empty button").click()
    assert find(browser, ".sides .changed, .sides .removed, .sides .added").is_displayed()
    assert not find(browser, ".empty").is_displayed()
    browser.execute_script("app.go({ step: app.program.steps.length - 1 })")
    assert "The last step that changes lines" in find(browser, ".empty").text
    find(browser, ".empty button").click()
    assert not find(browser, ".empty").is_displayed()


def test_names_of_steps_are_legible_in_a_narrow_window(opened, view):
    browser = opened(view)
    size = browser.get_window_size()
    try:
        browser.set_window_size(700, 900)
        heights = browser.execute_script(
            "return [...document.querySelectorAll('#steps .step')].map((e) => e.offsetHeight)"
        )
        assert max(heights) < 80
        assert find(browser, "#details").is_displayed()
    finally:
        browser.set_window_size(size["width"], size["height"])


def test_colors_and_themes(opened, view):
    browser = opened(view, "#color=bytes")
    assert any("iB" in text or " B" in text for text in texts(browser, ".cost"))
    before = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    find(browser, "#theme").click()
    assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") != before


def test_controls_are_named(opened, view):
    browser = opened(view)
    script = """
      return [...document.querySelectorAll('button, input, select, [role=tree], [role=tab], [role=tabpanel]')]
        .filter((e) => !(e.getAttribute('aria-label') || e.textContent.trim() || (e.labels && e.labels.length)))
        .map((e) => e.outerHTML);
    """
    assert browser.execute_script(script) == []


def test_only_rows_in_view_are_elements(opened):
    browser = opened(view_module(chain(20_000), passes=False))
    assert len(browser.find_elements("css selector", ".row")) < 120
    press(browser, "\ue010")  # End
    assert find(browser, ".row.selected").text.split()[1].startswith("v19999")
    assert len(browser.find_elements("css selector", ".row")) < 120


def test_rows_that_stay_in_view_stay_elements(opened):
    browser = opened(view_module(chain(2000), passes=False))
    scroll = """
        const [by, done] = arguments, rows = document.querySelector(".rows.program");
        document.querySelectorAll(".row").forEach((row) => { row.isOld = true; });
        rows.scrollTop += by;
        requestAnimationFrame(() => requestAnimationFrame(() => done(
            [...document.querySelectorAll(".row")].map((row) => [Number(row.dataset.index), row.isOld === true])
        )));
    """
    before = 0
    for by, most in ((4000, 200), (100, 5), (-300, 15), (20_000, 200), (-20_000, 200)):
        rows = browser.execute_async_script(scroll, by)
        numbers = [number for number, _ in rows]
        assert numbers == list(range(numbers[0], numbers[0] + len(rows)))
        assert sum(not is_old for _, is_old in rows) <= most
        assert numbers[0] - before == by // 20 - (10 if by == 4000 else 0)
        before = numbers[0]


def test_rows_are_texts_alone_while_the_scroll_bar_is_dragged(opened):
    browser = opened(view_module(chain(2000), passes=False))
    drag = """
        const done = arguments[0], rows = document.querySelector(".rows.program"), seen = [];
        const shown = () =>
            [...document.querySelectorAll(".row")].map((row) => [row.innerText.trim(), row.children.length]);
        // On a busy machine much time goes by between two frames.
        const timers = [];
        window.setTimeout = (after) => timers.push(after);
        const next = () => {
            if (seen.length > 2) {
                timers.at(-1)();
                return done([...seen, shown()]);
            }
            rows.scrollTop += 5000;
            requestAnimationFrame(() => requestAnimationFrame(() => { seen.push(shown()); next(); }));
        };
        next();
    """
    first, _, dragged, settled = browser.execute_async_script(drag)
    # A jump alone, such as that of a key, has whole rows at once.
    assert all(count > 3 for _, count in [*first, *settled])
    assert all(count == 0 for _, count in dragged)
    # What was to be read while the bar was dragged stays.
    assert len(dragged) >= 20
    assert {text for text, _ in dragged} <= {text for text, _ in settled}


def test_two_programs_are_side_by_side(opened):
    other = STEP.replace(
        "ROOT t = f32[8,8]{1,0} tanh(d)", "e = f32[8,8]{1,0} exponential(d)\n  ROOT t = f32[8,8]{1,0} tanh(e)"
    )
    browser = opened(view_difference(step(), HloModule.from_text(other)))
    assert find(browser, "#tab-changes").get_attribute("aria-selected") == "true"
    assert "only in B: 1" in find(browser, ".legend").text
    assert not find(browser, "#steps").find_elements("css selector", "input")
    (added,) = browser.find_elements("css selector", '.side.added[data-side="right"]')
    assert "e = " in added.text
    added.click()
    assert texts(browser, "#details h2") == ["e"]
    assert "only in B" in texts(browser, "#details h3")
    press(browser, "p")
    assert "exponential" in find(browser, ".row.selected.added").text
    # The root is in both: its counterpart is the other's, and so is what the other program selects.
    press(browser, "j")
    assert "tanh(e)" in find(browser, ".row.selected").text
    find(browser, "#counterpart button").click()
    assert "tanh(d)" in find(browser, ".row.selected").text
    assert find(browser, '[aria-current="step"]').get_attribute("data-step") == "0"
    press(browser, "]")
    assert "tanh(e)" in find(browser, ".row.selected").text
    address = browser.execute_script("return location.hash")
    assert "step=1" in address
    find(browser, "#search").send_keys("op:exponential")
    assert find(browser, "#matches").text == "1 found"


def test_a_served_page_follows_its_file(browser, tmp_path):
    path = tmp_path / "step.hlo"
    path.write_text(STEP)
    page = LivePage([str(path)], lambda: view_module(HloModule.from_text(path.read_text()), passes=False).html)
    with server_of(page, 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            browser.get(f"http://127.0.0.1:{server.server_port}/")
            press(browser, "jjj")
            name = texts(browser, "#details h2")
            path.write_text(STEP.replace("tanh(d)", "cosine(d)"))
            wait.WebDriverWait(browser, 30).until(lambda _: any("cosine(d)" in text for text in texts(browser, ".row")))
            assert texts(browser, "#details h2") == name
        finally:
            browser.get("about:blank")
            server.shutdown()
            thread.join()


def test_tabs_and_rows_say_what_they_are(opened, view):
    browser = opened(view)
    tabs = browser.find_elements("css selector", "[role=tab]")
    assert [tab.get_attribute("aria-selected") for tab in tabs].count("true") == 1
    tree = find(browser, "[role=tree]")
    press(browser, "jj")
    chosen = browser.execute_script("return arguments[0].getAttribute('aria-activedescendant')", tree)
    row = find(browser, f"#{chosen}")
    assert row.get_attribute("role") == "treeitem"
    assert row.get_attribute("aria-selected") == "true"
    press(browser, "?")
    assert find(browser, "dialog[open]").get_attribute("aria-labelledby") == "keys-title"


def view_of(report):
    return view_module(step(), passes=False, seconds=seconds_of(report, "p"), roofline=roofline_of(report, "p"))


def test_clicks_on_points_and_rows_go_to_instructions(opened):
    page = opened(view_of(report_of()), "#view=roofline")
    labels = [point.get_attribute("aria-label") for point in page.find_elements("css selector", ".point")]
    assert [label.split(":")[0] for label in labels] == ["t", "d"]
    assert labels[1].startswith("d: 10.0 operations per byte, 20.0 Gflop/s")
    assert len(page.find_elements("css selector", ".roof")) == 4
    script = "arguments[0].dispatchEvent(new MouseEvent('click'))"
    page.execute_script(script, page.find_elements("css selector", ".point")[1])
    assert texts(page, "#details h2") == ["d"]
    assert "d = " in find(page, ".row.selected").text
    find(page, "body").send_keys("r")
    assert find(page, "#tab-roofline").get_attribute("aria-selected") == "true"
    assert page.find_element("css selector", ".point.selected").get_attribute("aria-label") == labels[1]
    names = [text.split()[0] for text in texts(page, "#roofline tbody tr")]
    assert names == ["t", "d", "c"]
    # What the program does not have is no link.
    assert len(page.find_elements("css selector", "#roofline tbody button")) == 2
    find(page, "#roofline tbody button").click()
    assert texts(page, "#details h2") == ["t"]


def test_a_report_without_roofs_has_points(opened):
    page = opened(view_of(report_of(roofs=None)), "#view=roofline")
    assert len(page.find_elements("css selector", ".point")) == 2
    assert not page.find_elements("css selector", ".roof")
    assert "no roofs of its machine" in find(page, ".legend [role=status]").text


def test_without_a_profile_there_is_no_roofline(opened):
    page = opened(view_module(step(), passes=False))
    assert not find(page, "#tab-roofline").is_displayed()


def test_the_mesh_shows_tiles_groups_and_arrows(opened):
    browser = opened(view_module(HloModule.from_text(SHARDED)))
    browser.find_element("id", "tab-mesh").click()
    named = {link.text: link for link in browser.find_elements("css selector", ".listed button")}
    named["x"].click()
    devices = [own.get_attribute("aria-label") for own in browser.find_elements("css selector", "[data-device]")]
    assert devices == ["device 0: [0, *]", "device 1: [0, *]", "device 2: [1, *]", "device 3: [1, *]"]
    first = browser.find_element("css selector", "[data-device='0'] rect").get_attribute("style")
    assert first == browser.find_element("css selector", "[data-device='1'] rect").get_attribute("style") != ""
    assert find(browser, ".listed [aria-current] th").text == "x"
    assert "step=0" in browser.current_url and "view=mesh" in browser.current_url


def test_colors_by_rounding_error(opened):
    browser = opened(view_module(step(), passes=False, errors={"d": 1e-7, "t": 3e-5}), "#color=error")
    bars = {row.split(" = ")[0].split()[-1]: row for row in texts(browser, "[role=treeitem], .row") if " = " in row}
    assert "1.0e-7" in bars["d"] and "3.0e-5" in bars["t"] and "e-" not in bars["x"]


def test_a_report_of_times_is_shown_first(opened):
    """On the optimized program, colored, with the time of a loop on its row, which is in what it calls."""
    text = """HloModule m
    b { s = (s32[], f32[8]) parameter(0) i = s32[] get-tuple-element(s), index=0
        x = f32[8] get-tuple-element(s), index=1
        o = s32[] constant(1) j = s32[] add(i, o) y = f32[8] cosine(x) ROOT t = (s32[], f32[8]) tuple(j, y) }
    c { s = (s32[], f32[8]) parameter(0) i = s32[] get-tuple-element(s), index=0 n = s32[] constant(99)
        ROOT p = pred[] compare(i, n), direction=LT }
    ENTRY e { a = f32[8] parameter(0) z = s32[] constant(0) g = (s32[], f32[8]) tuple(z, a)
        w = (s32[], f32[8]) while(g), condition=c, body=b ROOT r = f32[8] get-tuple-element(w), index=1 }"""
    seconds = {"w": 1e-3, "y": 2e-3, "a": 5e-4}
    page = view_module(HloModule.from_text(text), until="dead-code", seconds=seconds)
    browser = opened(page)
    assert find(browser, "#color").get_attribute("value") == "time"
    bars = {row.split(" = ")[0].split()[-1]: row for row in texts(browser, "[role=treeitem], .row") if " = " in row}
    assert "3.00 ms" in bars["w"] and "500.0 us" in bars["a"] and " us" not in bars["g"]
    assert "7" in find(browser, "#steps [aria-current], #steps .selected").text
    find(browser, "#color option[value='']").click()
    browser.refresh()
    assert find(browser, "#color").get_attribute("value") == ""
