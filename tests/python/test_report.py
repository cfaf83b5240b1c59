"""The report of `forge demo` in a browser, on a telephone and on a desk, light and dark: nothing is cut off, everything
can be read."""

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FORGE = Path(os.environ.get("FORGE_COMMAND", ROOT / "build" / "forge"))
BROWSER = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome"))), None)
TEXT = "Gedächtnis, Maß und Länge.\n線形注意 — «так и есть» 😀 <b>&amp;</b>\n\tTab\n"

#: Runs in the page, and leaves what it finds there.
MEASURE = """
const width = innerWidth, found = {width, scroll: document.documentElement.scrollWidth, small: [], outside: [], faint: [], overlapping: []};
const light = colour => { const [r, g, b] = colour.match(/[0-9.]+/g).map(x => { x /= 255; return x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4; });
                          return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (!/, 0\\)$/.test(c)) return light(c); } return 1; };
const name = e => e.tagName + '.' + e.className + ' ' + e.textContent.slice(0, 30);
found.background = behind(document.body);
for (const e of document.body.querySelectorAll('*')) {
    const box = e.getBoundingClientRect(), style = getComputedStyle(e);
    if (e.closest('script') || box.width === 0 || style.display === 'none') continue;
    if (box.left < -1 || box.right > width + 1 || (style.overflowX !== 'visible' && !e.closest('svg') && e.scrollWidth > e.clientWidth + 1)) found.outside.push(name(e));
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
    if (parseFloat(style.fontSize) < 12 || e.closest('svg')) found.small.push(style.fontSize + ' ' + name(e));
    const [a, b] = [light(style.color), behind(e)];
    if ((Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 4.5) found.faint.push(name(e));
}
const ticks = [...document.querySelectorAll('.plot .x')].map(e => e.getBoundingClientRect()).filter(box => box.width);
for (let i = 1; i < ticks.length; ++i) if (ticks[i].left < ticks[i - 1].right + 4) found.overlapping.push(i);
found.ticks = ticks.length;
found.bars = [...document.querySelectorAll('.bar')].map(e => e.getBoundingClientRect().width);
document.body.insertAdjacentHTML('beforeend', '<template id=found></template>');
document.getElementById('found').setAttribute('data-found', JSON.stringify(found));
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    if not FORGE.exists():
        pytest.skip(f"{FORGE} is not built")
    folder = tmp_path_factory.mktemp("report")
    text = folder / "Übung <1>.txt"
    text.write_text(TEXT * 40, encoding="utf-8")
    subprocess.run(
        [FORGE, "demo", "--text", text, "--bytes", "3000", "--out", folder / "report.html"],
        check=True,
        capture_output=True,
    )
    return folder / "report.html"


def seen(report: Path, width: int, dark: bool) -> dict:
    """What the script finds in the page. FORGE_TEST_PICTURES names a folder for pictures of it."""
    page = report.with_name("measured.html")
    page.write_text(
        report.read_text(encoding="utf-8").replace("</body>", f"<script>{MEASURE}</script></body>"), encoding="utf-8"
    )
    browser = [
        BROWSER,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={report.parent}/profile",
        f"--window-size={width},3000",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
    ]
    if pictures := os.environ.get("FORGE_TEST_PICTURES"):
        subprocess.run(
            [*browser, f"--screenshot={pictures}/report-{width}-{'dark' if dark else 'light'}.png", report.as_uri()],
            capture_output=True,
            check=True,
        )
    done = subprocess.run(
        [*browser, "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=True,
    )
    found = re.search(r'id="found" data-found="([^"]*)"', done.stdout)
    assert found, done.stdout[-500:] + done.stderr
    return json.loads(html.unescape(found[1]))


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium; scripts/setup test installs one")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_everything_can_be_read(report, width, dark):
    found = seen(report, width, dark)
    assert found["width"] == width and found["scroll"] <= width
    assert not found["outside"], "beyond the edge of the window, or scrolls"
    assert not found["small"], "smaller than 12 px, or text in a drawing, which shrinks with it"
    assert not found["faint"], "contrast less than 4.5 to 1"
    assert found["ticks"] >= 3 and not found["overlapping"]
    assert len(found["bars"]) == 14 and min(found["bars"]) >= 2 and max(found["bars"]) > width / 4
    assert (found["background"] < 0.1) == dark


def test_text_shows_as_text_and_rates_and_times_have_one_unit_each(report):
    page = report.read_text(encoding="utf-8")
    assert page.index("<meta charset='utf-8'>") < 200
    assert "Übung &lt;1&gt;.txt" in page
    passage = html.unescape(re.sub("</?mark>", "", re.search("<pre>(.*?)</pre>", page, re.S)[1]))
    assert passage[:50] in TEXT * 3 and all(
        word in passage for word in ("Gedächtnis", "線形注意", "«так", "😀", "<b>&amp;</b>", "\tTab")
    )
    cells = re.findall("data-label='(time|tokens/s)'[^>]*>([^<]*)<", page)
    assert len(cells) == 14 and {unit.split()[-1] for _, unit in cells} == {"ms", "k"}
    assert re.search(r"<b>[0-9.]+ k</b><span class='soft'>tokens per second", page)


def test_what_is_no_text_is_shown_as_such(report, tmp_path):
    latin = tmp_path / "latin.txt"
    latin.write_bytes("Größe\x07 <und> Maß\n".encode("latin-1") * 160)
    subprocess.run([FORGE, "demo", "--text", latin, "--out", tmp_path / "r.html"], check=True, capture_output=True)
    passage = re.sub("</?mark>", "", (tmp_path / "r.html").read_text(encoding="utf-8"))
    assert "Gr\ufffd\ufffde· &lt;und&gt; Ma\ufffd\n" in passage
