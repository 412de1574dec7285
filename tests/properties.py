"""How long properties are tried, and the texts and tables that they speak about.

`RTSCV_PROPERTIES=long` tries each many times more, `quick` a few times; the examples are the same
in every run.
"""

import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

settings.register_profile(
    "ci",
    max_examples=200,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("long", settings.get_profile("ci"), max_examples=5_000)
settings.register_profile("quick", settings.get_profile("ci"), max_examples=20)
# Not loaded: other tests keep the settings that they have.
PROFILE = settings.get_profile(os.environ.get("RTSCV_PROPERTIES", "ci"))


def tried(share: float = 1.0) -> settings:
    """Return the settings of a property of which an example costs 1/share of a cheap one."""
    return settings(PROFILE, max_examples=max(5, round(share * PROFILE.max_examples)))


NASTY = (
    *(
        "<script>alert(1)</script>",
        "</script>",
        "[a](http://evil.example)",
        "![a](//x)",
        "{{ 7*7 }}",
    ),
    *(
        "a | b",
        "`",
        "```\n",
        "# x",
        "- x",
        "&lt;b&gt;",
        "\\",
        "\\|",
        "http://evil.example",
        "www.a.b",
    ),
    *("a@evil.example", "=1+1", "@x", "%s{}", "$(id)", "../../etc/passwd", "C:\\x", "~/.ssh"),
    *("NA", "None", "null", "nan", "NaN", "-", "true", "no", "~", "007", "1_0", "1e5", ".5", "1,5"),
    *(
        "line\nend",
        "line\r\nend",
        "tab\t",
        'a "b"',
        "'",
        "a;b",
        "a,b",
        "\u202eabc",
        "e\u0301",
        "\u2028",
    ),
    *("\U0001f600", "\ufeffx", "\u200b", "x" * 300, " ", " x ", "_x_", "**x**", "ß", "İ"),
)
TEXTS = (
    st.text(max_size=40)
    | st.sampled_from(NASTY)
    | st.lists(st.sampled_from(NASTY), min_size=2, max_size=3).map("".join)
)
"""Any text, and more often than chance would have it what breaks pages, paths or parsers."""
PRINTABLE = TEXTS.filter(str.isprintable)
STORABLE = TEXTS.map(lambda text: text.encode("utf-8", "ignore").decode())
"""Text without lone surrogates, which no file holds."""
