"""Numbers and untrusted text, as people read them."""

import subprocess
import sys

import pytest

from rtscv_mlops.report.figures import unique
from rtscv_mlops.text import (
    DASH,
    caption,
    commonmark,
    estimate,
    inert,
    inert_line,
    interval,
    multiple,
    number,
    percent,
    quantity,
    rate,
    redact,
    safe_path,
)


@pytest.mark.parametrize(
    ("share", "text"),
    [(None, "not known"), (float("nan"), "not known"), (0, "0 %"), (0.0004, "< 0.1 %"),
     (0.01, "1 %"), (0.043, "4.3 %"), (0.43, "43 %"), (0.946, "94.6 %"), (0.97, "97 %"),
     (0.9995, "> 99.9 %"), (1, "100 %")],
)  # fmt: skip
def test_a_measured_share_has_digits_where_they_matter(share, text):
    """One decimal near nothing and near everything, and never a rounded 0 % or 100 %."""
    assert percent(share) == text


def test_a_cell_without_a_number_has_a_dash():
    """Tables show a dash where a sentence says that a number is not known."""
    assert (percent(None, DASH), estimate(None, DASH), number(None, DASH)) == (DASH, DASH, DASH)


def test_an_estimate_claims_no_more_than_its_interval():
    """A rate and its limits are written in whole percent, alone and together alike."""
    assert rate(0.073, (0.041, 0.098)) == "about 7 % (4-10 %)"
    assert (estimate(0.073), interval((0.041, 0.098))) == ("7 %", "4-10 %")
    assert estimate(0.004) == "0.4 %"
    assert estimate(0.0004) == "< 0.1 %"


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "—"), (3.0, "3"), (12480, "12,480"), (0.123456, "0.123"), (True, "True"),
     (float("inf"), "inf"), ("a" * 100, "a" * 39 + "…"), (float("nan"), "—")],
)  # fmt: skip
def test_cells_are_short(value, text):
    """No float noise and no endless text in a table."""
    assert quantity(value) == text


def test_untrusted_text_stays_text():
    """Markup, Markdown, control characters and marks that reorder text have no effect."""
    assert inert({"<b>": ["</b>", 1]}) == {"‹b›": ["‹/b›", 1]}  # noqa: RUF001
    assert caption("a\u202eb\x00c\nd\ud800") == "abc d"
    assert caption("   ") == "(blank)"
    assert commonmark("*a* [b](c) `d`") == r"\*a\* \[b\]\(c\) \`d\`"
    assert inert_line("see <a>http://x</a>") == "see ‹a›http: //x‹/a›"  # noqa: RUF001


def test_numbers_for_charts():
    """Multiples are short, tiny numbers say only that they are tiny, labels are unique."""
    assert [multiple(factor) for factor in (2.54, 250)] == ["2.5x", "over 100x"]
    assert [number(value) for value in (0.0123, 0.4876, 1e-9, 0.0)] == [
        "0.0123",
        "0.488",
        "< 0.0001",
        "0",
    ]
    assert unique(["a", "b", "a"]) == ["a (1)", "b", "a (2)"]


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("x://user:secret@host/db", "x://host/db"),
        ("x://user:p@ss@host/db", "x://host/db"),
        ("x://token@host", "x://host"),
        ("cannot reach x://user:p@ss@host/db now", "cannot reach x://host/db now"),
        ("host=db password=secret user=me", "host=db password= user=me"),
        ("x://host/db?password=secret&ssl=1", "x://host/db?password=&ssl=1"),
        ("http://host/path", "http://host/path"),
    ],
)
def test_no_part_of_a_login_is_left(address, public):
    """User, password and token are removed whole, also if the password holds an @."""
    assert redact(address) == public


def test_a_path_is_shown_without_its_login():
    """The path of an artifact store keeps no token."""
    assert safe_path("s3://token@bucket/a") == "s3://bucket/a"
    assert redact("x://user:p@ss@host/db", "…") == "x://…host/db"


def test_text_and_command_line_load_no_settings():
    """`--help` waits neither for pydantic nor for any library of the work."""
    heavy = ("pydantic", "numpy", "pandas", "mlflow", "sklearn")
    program = (
        f"import sys, rtscv_mlops.cli; print([name for name in {heavy} if name in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert done.stdout.strip() == "[]", done.stderr
