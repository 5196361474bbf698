"""The pages in a real browser: they open in silence, alone, and answer to mouse and keys."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from browser import Browser, is_missing
from decompositions import make_effect, refer, write_decomposition, write_model
from judgements import SCORES, write_judgement, write_offline_run
from pages import report_decomposition, report_judgement, report_runs
from run_tables import write_run

from grd_offline.methods.result import read_decomposition
from grd_offline.report.decomposed import compose_page, read_tracks
from grd_offline.report.film import Film

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(is_missing(), reason="needs Chromium on the PATH"),
]
EVIL = (
    "<script>window.hacked=1</script>",
    "</script><img src=x onerror=window.hacked=2>",
    "<b>bold</b> & <a href='javascript:window.hacked=3'>",
)


@pytest.fixture(scope="module")
def browser():
    with Browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    effects = [
        make_effect(["speed"], 0.7),
        make_effect(["height", "speed"], 0.2),
        make_effect(["height", "speed", "push"], 0.1),
    ]
    grd = write_decomposition(folder / "grd", effects=effects)
    (folder / "grd.html").write_text(report_decomposition(grd))
    runs = [write_run(folder / "one"), write_run(folder / "two", groups=("rrd",))]
    (folder / "runs.html").write_text(report_runs(runs))
    (folder / "offline.html").write_text(report_runs([write_offline_run(folder / "offline")]))
    judge = write_judgement(folder / "judge")
    (folder / "judge.html").write_text(report_judgement(judge))
    return folder


@pytest.fixture(params=["grd.html", "runs.html", "judge.html"])
def page(request, pages):
    return pages / request.param


@pytest.fixture
def grd(browser, pages):
    browser.open(pages / "grd.html")
    browser.run("document.querySelector('.viewer').scrollIntoView({block: 'start'})")
    browser.wait("document.querySelector('.viewer .main-svg')")
    return browser


def draw_all(browser):
    """Bring every drawing into the window."""
    count = browser.run("document.querySelectorAll('[data-draw]').length")
    for index in range(count):
        browser.run(
            "document.querySelectorAll('[role=tabpanel]').forEach((it) => it.hidden = false);"
            f"document.querySelectorAll('[data-draw]')[{index}].scrollIntoView()"
        )
        browser.wait(f"document.querySelectorAll('[data-draw]')[{index}].querySelector('svg')")


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_pages_open_in_silence_and_ask_for_nothing(browser, page, width, dark):
    browser.open(page, width=width, dark=dark)
    draw_all(browser)
    assert browser.list_errors() == []
    assert browser.list_requests() == []
    # Nothing is wider than the window: what is wide scrolls within its box.
    assert browser.run("document.documentElement.scrollWidth") == width


def test_the_picker_shows_another_episode(grd):
    read = "document.querySelector('.viewer').getAttribute('aria-label')"
    before = grd.run(read)
    grd.run("document.querySelector('#episode').focus()")
    grd.press("Home")
    assert grd.run("document.activeElement.id") == "episode"
    assert grd.run(read).startswith("Episode 0 of 50 steps")
    grd.press("ArrowDown")
    assert grd.run(read).startswith("Episode 1 of 51 steps")
    assert grd.run(read) != before
    grd.run("document.querySelector('#order').value = 'return';"
            "document.querySelector('#order').dispatchEvent(new Event('change'))")  # fmt: skip
    shown = grd.run("[...document.querySelector('#episode').options].map((o) => o.text)")
    returns = [float(text.split("return ")[1].replace(",", "")) for text in shown]
    assert returns == sorted(returns, reverse=True)
    grd.run("document.querySelector('[data-landmark=best]').click()")
    assert grd.run("document.querySelector('#episode').selectedIndex") == 0


def test_sums_meet_the_return_where_they_are_drawn(grd):
    grd.run("document.querySelector('[data-landmark=best]').click()")
    data = grd.run(
        "document.querySelector('.viewer').data.map(({name, x, y}) => [name ?? '', [...x], [...y]])"
    )
    found = {name: (x, y) for name, x, y in data}
    payload = json.loads(grd.run("document.querySelector('#payload').textContent"))["viewer"]
    episode = payload["episodes"][payload["landmarks"]["best"]]
    assert found["sum found"][1][-1] == pytest.approx(episode["sum"])
    assert found["observed return"] == ([episode["length"] - 1], [episode["return"]])
    assert found["true sum"][1][-1] == pytest.approx(episode["true"], abs=1e-2)
    rewards = found["reward found"][1]
    assert sum(rewards) == pytest.approx(episode["sum"], abs=0.05)
    assert len(rewards) == episode["length"]
    assert found["speed"][1] == pytest.approx(rewards, abs=1e-3)


def test_the_return_is_called_so_where_it_is_paid_at_the_last_step(grd):
    titles = grd.run("document.querySelector('.viewer').layout.annotations.map((one) => one.text)")
    assert "Return, paid at the last step" in titles[2]


def test_hover_reads_a_step_and_moves_the_cursor(grd):
    box = grd.run("(({x, y, width}) => [x, y, width])("
                  "document.querySelector('.viewer').getBoundingClientRect())")  # fmt: skip
    for share in (0.4, 0.5):
        grd.move_mouse(box[0] + share * box[2], box[1] + 120)
    grd.wait("document.querySelector('.viewer .hoverlayer').children.length")
    step = "Number(document.querySelector('#step').value)"
    reading = "document.querySelector('#reading').textContent"
    cursor = "document.querySelector('.viewer').layout.shapes[0].x0"
    grd.wait(f"{step} > 10 && {reading}.startsWith(`Step ${{{step}}} of`) && {cursor} === {step}")


def test_the_step_slider_and_zoom_work_by_keys(grd):
    grd.run("document.querySelector('#step').focus()")
    grd.press("Home")
    grd.press("ArrowRight", 3)
    assert "Step 3 of" in grd.run("document.querySelector('#reading').textContent")
    grd.press("Tab")
    assert grd.run("document.activeElement.textContent") == "Zoom in"
    grd.press("Enter", 2)
    low, high = grd.run("document.querySelector('.viewer').layout.xaxis.range")
    assert high - low < 20
    assert low <= 3 <= high
    grd.press("Tab", 2)
    grd.press("Enter")
    low, high = grd.run("document.querySelector('.viewer').layout.xaxis.range")
    assert low < 0
    assert high > 49


def test_tabs_answer_to_arrows_and_focus_is_seen(grd):
    grd.run("document.querySelector('[role=tab]').focus()")
    grd.press("ArrowRight")
    assert grd.run("document.activeElement.textContent") == "Heat maps"
    assert grd.run("document.querySelector('#drawing-panel-0').hidden")
    grd.wait("document.querySelector('.maps .main-svg')")
    # Rows from top to bottom, as the masks have them.
    rows = grd.run("document.querySelector('.maps').data[0].z")
    state_state = [row[:3] for row in rows[:3]]
    assert [[value is not None for value in row] for row in state_state] == [
        [True, False, False], [False, True, False], [False, True, True]
    ]  # fmt: skip
    grd.press("Tab")
    grd.press("ArrowLeft")
    outline = grd.run("getComputedStyle(document.activeElement).outlineWidth")
    assert outline == "3px"


def test_the_graph_shows_what_touches_a_dimension(grd):
    grd.run("document.querySelector('.graph').scrollIntoView()")
    grd.wait("document.querySelector('.graph svg path')")
    # It opens with the two parents of the reward, in the order of their strength.
    texts = "[...document.querySelectorAll('.graph .node text')].map((t) => t.textContent)"
    assert grd.run(texts) == ["speed  100\xa0%", "push  10\xa0%", "reward"]
    assert grd.run("document.querySelectorAll('.graph path').length") == 2
    widths = grd.run("[...document.querySelectorAll('.graph path')].map("
                     "(path) => Number(path.getAttribute('stroke-width')))")  # fmt: skip
    assert widths == pytest.approx([0.6 + 9.4 * 0.1, 10.0], abs=0.01)
    assert grd.run("document.querySelector('#strongest').hidden")
    grd.run("document.querySelector('#node').value = '';"
            "document.querySelector('#node').dispatchEvent(new Event('change'))")  # fmt: skip
    # Two to the reward, four among states, three from the action.
    assert grd.run("document.querySelectorAll('.graph path').length") == 9
    filled = grd.run("[...document.querySelectorAll('.graph .node')].map((node) => "
                     "[node.querySelector('title').textContent, "
                     "node.querySelector('circle')?.getAttribute('fill')])")  # fmt: skip
    accent = grd.run("getComputedStyle(document.documentElement).getPropertyValue('--accent')")
    assert {name for name, fill in filled if fill == accent} == {"speed", "tilt"}


def test_a_waterfall_leads_from_the_mean_to_the_reward(browser, pages):
    folder = write_model(write_decomposition(pages / "waterfall"))
    (pages / "waterfall.html").write_text(report_decomposition(folder))
    browser.open(pages / "waterfall.html")
    browser.run("document.querySelector('.waterfall').scrollIntoView()")
    browser.wait("document.querySelector('.waterfall .main-svg')")
    browser.run("document.querySelector('#step').focus()")
    browser.press("ArrowRight", 7)
    title = "document.querySelector('#waterfall-title').textContent"
    browser.wait(f"{title}.includes('step 7:')")
    bars = browser.run("(({base, x, text}) => [[...text], [...base], [...x]])("
                       "document.querySelector('.waterfall').data[0])")  # fmt: skip
    names, starts, sizes = ([*reversed(part)] for part in bars)
    assert names == ["mean reward", "speed", "push", "reward"]
    reward = browser.run("document.querySelector('.viewer').data.find("
                         "(one) => one.name === 'reward found').y[7]")  # fmt: skip
    assert (starts[-1], sizes[-1]) == (0, pytest.approx(reward, abs=1e-3))
    assert starts[:3] == pytest.approx([0, sizes[0], sizes[0] + sizes[1]])
    assert sizes[-1] == pytest.approx(sum(sizes[:3]))
    assert browser.list_errors() == []


def test_few_values_have_bars_and_a_pair_shows_both_of_its_values(browser, tmp_path):
    speed, push, tilt = refer(["speed", "push", "tilt"])
    effects = [
        {**make_effect([one.name for one in inputs], share), "references": inputs}
        for inputs, share in (((speed,), 0.6), ((speed, push), 0.3), ((speed, tilt), 0.1))
    ]
    folder = write_model(write_decomposition(tmp_path / "grd"))
    record = replace(read_decomposition(folder), effects=effects)
    tracks = read_tracks(read_decomposition(folder))
    rng = np.random.default_rng(0)
    sample = {speed: rng.choice([-1.0, 1.0], 200), push: rng.normal(size=200),
              tilt: rng.choice([0.0, 1.0], 200)}  # fmt: skip
    tracks = replace(tracks, sample=sample, term_inputs=[[speed], [speed, push]])
    (tmp_path / "few.html").write_text(compose_page(record, tracks))
    browser.open(tmp_path / "few.html")
    draw_all(browser)
    drawn = browser.run("[...document.querySelectorAll('.effect')].map((element) => "
                        "element.data.map((trace) => trace.type))")  # fmt: skip
    assert drawn == [["bar", "bar"], ["scatter"] * 6, ["heatmap"]]
    ends = browser.run("document.querySelector('.effect').data[1].y")
    assert ends == pytest.approx([-0.6, 0.6], abs=1e-3)
    rows = browser.run("document.querySelector('.waterfall').layout.yaxis.ticktext")
    assert re.fullmatch(r"speed = -?[\d.]+", rows[2])
    assert re.fullmatch(r"push: -?[\d.]+, -?[\d.]+", rows[1])
    assert browser.list_errors() == []


def test_a_button_copies_the_code_beside_it(grd):
    grd.run("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    grd.run("[...document.querySelectorAll('.copy')].forEach((button) => button.click())")
    grd.wait("document.querySelectorAll('.copy')[1].textContent === 'Copied'")
    assert grd.run("window.copied") == "grd-offline decompose data.h5 --out grd"
    assert grd.run("document.querySelectorAll('.copy').length") == 2


def test_a_cube_is_cut_by_its_slider(grd):
    grd.run("document.querySelector('.slice').scrollIntoView()")
    grd.wait("document.querySelectorAll('.effect .main-svg').length >= 3")
    read = "document.querySelectorAll('.effect')[2].data[0].z[0][0]"
    before = grd.run(read)
    grd.run("document.querySelector('.slice').focus()")
    grd.press("End")
    assert grd.run(read) == pytest.approx(before + 0.2, abs=1e-3)


def test_masks_and_rewards_of_a_run_move_with_their_sliders(browser, pages):
    browser.open(pages / "runs.html")
    draw_all(browser)
    for name in ("mask", "reward"):
        browser.run(f"document.querySelector('#{name}-moment').focus()")
        browser.press("Home")
        assert "tep 1,000:" in browser.run(f"document.querySelector('#{name}-reading').textContent")
        browser.press("ArrowRight")
        assert "tep 2,000:" in browser.run(f"document.querySelector('#{name}-reading').textContent")
    browser.run("document.querySelector('#metric').value = 'correlation';"
                "document.querySelector('#metric').dispatchEvent(new Event('change'))")  # fmt: skip
    label = browser.run("document.querySelector('.learning').getAttribute('aria-label')")
    assert "one: grd-quadratic ends at 0.5" in label
    assert browser.list_errors() == []


def test_names_show_as_they_are_and_run_nothing(browser, tmp_path):
    folder = write_decomposition(tmp_path / "grd", states=EVIL, actions=(EVIL[1] + "!",),
                                 data=EVIL[0], fit=EVIL[1], reason=EVIL[2])  # fmt: skip
    (tmp_path / "evil.html").write_text(report_decomposition(folder))
    browser.open(tmp_path / "evil.html")
    draw_all(browser)
    assert browser.run("window.hacked") is None
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert EVIL[1] in browser.run("document.querySelector('h1').textContent")
    assert EVIL[0] in browser.run("document.querySelector('.source').textContent")
    assert EVIL[2] in browser.run("document.querySelector('#node').textContent")
    titles = browser.run(
        "[...document.querySelectorAll('.annotation-text')].map((t) => t.textContent)"
    )
    assert any("img src=x" in title and title.startswith("</script><") for title in titles)
    ticks = browser.run(
        "[...document.querySelectorAll('.maps .ytick text')].map((t) => t.textContent)"
    )
    assert any(tick.startswith("<script>") for tick in ticks)
    assert browser.run("document.querySelectorAll('svg a').length") == 0
    assert browser.list_errors() == []
    assert browser.list_requests() == []


def test_names_of_a_run_run_nothing(browser, tmp_path):
    run = write_run(tmp_path / "run", groups=tuple(name.replace("/", "") for name in EVIL[:2]))
    (tmp_path / "evil.html").write_text(report_runs([run]))
    browser.open(tmp_path / "evil.html")
    draw_all(browser)
    assert browser.run("window.hacked") is None
    assert "img src=x" in browser.run("document.querySelector('.hero .lead').textContent")
    legend = browser.run("document.querySelector('.learning .legend').textContent")
    assert "<script>window" in legend
    assert browser.list_errors() == []


def test_an_offline_run_is_drawn_over_updates(browser, pages):
    browser.open(pages / "offline.html", width=390)
    draw_all(browser)
    label = browser.run("document.querySelector('.learning').getAttribute('aria-label')")
    assert label.startswith("true return over updates: true ends at 301, observed ends at 30")
    assert browser.run("document.querySelector('#metric')") is None
    # Below five seeds, each seed is a line without being asked for: 5 sources, 2 seeds.
    assert browser.run("document.querySelector('#seeds')") is None
    assert browser.run("document.querySelector('.learning').data.length") == 15
    assert browser.list_errors() == []


@pytest.fixture
def judge(browser, pages):
    browser.open(pages / "judge.html")
    browser.wait("document.querySelector('.verdicts .main-svg')")
    return browser


def test_verdicts_are_drawn_as_they_were_written(judge, pages):
    written = json.loads((pages / "judge" / "judge.json").read_text())["verdicts"]
    text = judge.run("document.querySelector('#verdict table').innerText")
    lines = {line.split()[0]: line for line in text.splitlines()[1:]}
    drawn = judge.run("Object.fromEntries(document.querySelector('.verdicts').data.filter("
                      "(trace) => trace.name).map(({name, x}) => [name, [...x]]))")  # fmt: skip
    for one in written:
        assert drawn[f"{one['source']}, mean"] == [one["mean_return"]]
        assert drawn[f"{one['source']}, seeds"] == one["scores"]
        assert f"{one['mean_return']:.0f} ± {one['std_return']:.0f}" in lines[
            one["source"]
        ].replace("\xa0", " ")
        assert f"{one['pearson']:.3f}" in lines[one["source"]]
    judge.run("document.querySelector('.learning').scrollIntoView()")
    judge.wait("document.querySelector('.learning .main-svg')")
    data = judge.run("document.querySelector('.learning').data.at(-1)")
    assert (data["name"], data["x"], data["y"]) == (
        "mean of the data", [1000, 4000], [-100, -100]
    )  # fmt: skip
    levels = judge.run("document.querySelector('.verdicts').layout.shapes.map((line) => line.x0)")
    assert levels == [300, -100]


def test_verdicts_are_told_as_shares_by_keys(judge):
    read = "document.querySelector('.verdicts').getAttribute('aria-label')"
    assert judge.run(read).startswith("true return: true 300, grd 291")
    judge.run("document.querySelector('#scale').focus()")
    judge.press("ArrowDown")
    assert judge.run(read) == (
        "share of the return with the true rewards: true 100 %, grd 97 %, uniform 70 %, ircr 70 %, "
        "observed 10 %, the data -33 %"
    )
    judge.press("ArrowDown")
    assert judge.run(read).endswith(
        "grd 98 %, uniform 78 %, ircr 78 %, observed 32 %, the data 0 %"
    )
    drawn = judge.run("document.querySelector('.verdicts').data.find("
                      "(trace) => trace.name === 'grd, seeds').x")  # fmt: skip
    assert drawn == pytest.approx([(score + 100) / 4 for score in SCORES["grd"]])
    assert judge.list_errors() == []


def test_hover_tells_a_seed(judge):
    judge.run("document.querySelector('.verdicts').scrollIntoView()")
    # The last small dots are those of the last row, observed: 20 and 38.
    x, y = judge.run(
        "(({x, y, width, height}) => [x + width / 2, y + height / 2])([...document."
        "querySelectorAll('.verdicts .scatterlayer .point')].at(-1).getBoundingClientRect())"
    )
    judge.move_mouse(x - 3, y)
    judge.move_mouse(x, y)
    judge.wait("document.querySelector('.verdicts .hoverlayer').textContent")
    told = judge.run("document.querySelector('.verdicts .hoverlayer').textContent")
    assert told == "observed, seed 6: 38"


def test_names_of_a_verdict_run_nothing(browser, tmp_path):
    folder = write_judgement(tmp_path / "judge", file=EVIL[0])
    contents = json.loads((folder / "judge.json").read_text())
    # No command writes such a source, but a folder may come from anywhere.
    contents["sources"]["grd"]["reason"] = EVIL[1]
    contents["score"] = EVIL[2]
    for one in contents["verdicts"]:
        one["source"] += EVIL[1] * (one["source"] == "observed")
    (folder / "judge.json").write_text(json.dumps(contents))
    (tmp_path / "evil.html").write_text(report_judgement(folder))
    browser.open(tmp_path / "evil.html")
    draw_all(browser)
    assert browser.run("window.hacked") is None
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert browser.run("document.title") == f"{EVIL[0]}: rewards judged"
    assert EVIL[0] in browser.run("document.querySelector('.source').textContent")
    assert EVIL[0] in browser.run("document.querySelector('#again pre').textContent")
    assert EVIL[1] in browser.run("document.querySelector('#methods').textContent")
    assert EVIL[2] in browser.run("document.querySelector('#verdict .lead').textContent")
    ticks = browser.run(
        "[...document.querySelectorAll('.verdicts .ytick text')].map((t) => t.textContent)"
    )
    assert any(tick.startswith("observed</scrip…") for tick in ticks)
    assert browser.list_errors() == []
    assert browser.list_requests() == []


def test_dark_mode_and_print_change_the_drawings(browser, pages):
    colours = {}
    for dark in (False, True):
        browser.open(pages / "grd.html", dark=dark)
        browser.run("document.querySelector('.viewer').scrollIntoView()")
        browser.wait("document.querySelector('.viewer .main-svg')")
        colours[dark] = browser.run("document.querySelector('.viewer').layout.font.color")
    assert colours[False] != colours[True]
    browser.run("dispatchEvent(new Event('beforeprint'))")
    assert browser.run("document.querySelector('.viewer').layout.font.color") == colours[False]
    undrawn = "[...document.querySelectorAll('[data-draw]')].filter((e) => !e.querySelector('svg'))"
    assert browser.run(f"{undrawn}.length") == 0


def test_a_film_moves_with_the_cursor(browser, tmp_path):
    record = read_decomposition(write_decomposition(tmp_path / "grd"))
    pixel = "data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAA="
    clip = {"steps": [0, 10, 20, 30], "columns": 2, "width": 40, "height": 30, "image": pixel}
    page = compose_page(record, read_tracks(record), Film("As it was.", {0: clip}))
    (tmp_path / "film.html").write_text(page)
    browser.open(tmp_path / "film.html")
    change = "value = 0; document.querySelector('#episode').dispatchEvent(new Event('change'))"
    browser.run(f"document.querySelector('#episode').{change}")
    browser.run("document.querySelector('#step').focus()")
    browser.press("Home")
    browser.press("ArrowRight", 28)
    frame = "document.querySelector('.film .frame')"
    assert browser.run(f"{frame}.dataset.step") == "30"
    assert browser.run(f"{frame}.style.backgroundPosition") == "-40px -30px"
    browser.run("document.querySelector('#play').click()")
    browser.wait("document.querySelector('#play').textContent === 'Play'")
    assert browser.run(f"{frame}.dataset.step") == "30"
    browser.run("document.querySelector('#next').click()")
    assert browser.run("document.querySelector('.film').hidden")
    assert browser.list_errors() == []
