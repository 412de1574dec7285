"""What a reviewer reads, and what may not be approved."""

import re
from datetime import UTC, datetime
from html import unescape
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from rtscv_mlops.facts import (
    ClassComparison,
    ClusterCard,
    ColumnDrift,
    Comparison,
    DriftFacts,
    TellingFeature,
    WindowFacts,
)
from rtscv_mlops.judging.contest import find_blocker
from rtscv_mlops.outcomes import ReviewStatus
from rtscv_mlops.review.question import DESCRIPTION_LIMIT, describe, one_line
from rtscv_mlops.text import markdown, plain, probability, rate, safe_link

LINKS = {"run": "http://localhost:5000/#/experiments/1/runs/a_b", "report": "https://x.example/r"}

HOSTILE = [
    "[click](http://evil.example)",
    "![pixel](http://evil.example/x.png)",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</td></table><b>",
    "a | b | c",
    r"a \| b \\| c",
    "`code` ``more``",
    "**bold** _slanted_ ~~struck~~",
    "{{ 7*7 }} {% if x %} {# y #}",
    "one\ntwo\r\n\n# heading\n| a | b |\n|---|---|",
    "http://evil.example and www.evil.example",
    "somebody@evil.example @channel :smile:",
    "[id]: http://evil.example",
    "&lt;b&gt; &#60;i&#62;",
    "```\nfence",
    "right\u202eleft\u200b\u2028line\x00\x1b[31m",
    "\ud800",
    "=" * 5_000,
    "|" * 5_000,
]


def comparison(*classes, rows=400):
    """Champion against challenger, with these classes as (label, rows, before, after)."""
    return Comparison(
        how="5 folds of the training data",
        rows=rows,
        champion_accuracy=0.97,
        challenger_accuracy=0.96,
        champion_macro_f=0.968,
        challenger_macro_f=0.951,
        classes=tuple(
            ClassComparison(label=label, rows=rows, champion=before, challenger=after, unknown=0.01)
            for label, rows, before, after in classes
        ),
    )


def window_facts(text="cat", many=2, **changes):
    """A window with unknowns in which every text that data can choose is `text`."""
    feature = TellingFeature(name=text, here=text, known=text, effect=2.0)
    column = ColumnDrift(name=text, kind="number", score=0.3, threshold=0.1, drifted=True)
    facts = {
        "key": "0" * 64,
        "monitor": text,
        "model": text,
        "champion_version": "3",
        "window_start": datetime(2026, 1, 5, tzinfo=UTC),
        "window_end": datetime(2026, 1, 6, tzinfo=UTC),
        "verdict": "unknowns",
        "headline": f"About 7 % (4-10 %) of this window is new: {text}.",
        "rows": 1200,
        "sampled": 1000,
        "copies": 3,
        "p_value": 1e-9,
        "unknowns": 37,
        "unknown_rate": 0.07,
        "unknown_rate_interval": (0.04, 0.10),
        "known_false_rate": 0.004,
        "unknown_label": text,
        "null": f"held-out rows of {text}",
        "reference_rows": 1400,
        "clusters": tuple(
            ClusterCard(
                number=number + 1,
                size=30 - number,
                share=0.5,
                quality=0.8,
                called={text: 0.7, "8": 0.2, "9": 0.1},
                confidence=0.81,
                features=(feature,) * 4,
            )
            for number in range(many)
        ),
        "drift": DriftFacts(share=0.2, columns=(column,) * many),
        "comparison": comparison(*[(text, 40, 0.97, 0.97 - 0.01 * loss) for loss in range(many)]),
        "findings": (f"Column {text} is constant.",) * many,
        "settings": {"cv": 3, "gate": text, "seed": 0},
    }
    return WindowFacts(**facts | changes)


def not_assessed(why="too_few_rows", **changes):
    """A window that could not be judged."""
    bare = {"p_value": None, "unknowns": 0, "unknown_rate": None, "unknown_rate_interval": None}
    empty = {"clusters": (), "drift": None, "comparison": None, "known_false_rate": None}
    headline = "The window has 12 rows; 50 are needed."
    verdict = f"not_assessed:{why}"
    return window_facts(**bare | empty | {"headline": headline, "verdict": verdict} | changes)


def page(markdown):
    """The tokens of a page, as a renderer with tables, HTML and bare links sees them."""
    renderer = MarkdownIt("gfm-like", {"html": True})
    renderer.linkify.set({"fuzzy_link": False})
    blocks = renderer.parse(markdown)
    return [token for block in blocks for token in [block, *(block.children or [])]]


def shape(markdown):
    """The structure of a page without its words."""
    return [token.type for token in page(markdown) if token.type not in ("text", "softbreak")]


@pytest.mark.parametrize(
    ("p_value", "words"),
    [
        (1e-9, "p < 0.0001"),
        (0.0, "p < 0.0001"),
        (0.0314, "p = 0.031"),
        (1.0, "p = 1"),
        (None, "p not known"),
        (float("nan"), "p not known"),
    ],
)
def test_p_values_are_written_for_people(p_value, words):
    """No p-value pretends to more digits than it has."""
    assert probability(p_value) == words


def test_rates_carry_their_interval():
    """The estimate never stands without its limits where they are known."""
    assert rate(0.07, (0.04, 0.10)) == "about 7 % (4-10 %)"
    assert rate(0.004, (0.001, 0.012)) == "about 0.4 % (0.1-1 %)"
    assert rate(0.004, (0.0, 0.03)) == "about 0.4 % (0-3 %)"
    assert rate(0.07) == "about 7 %"
    assert rate(None) == "not known"


@pytest.mark.parametrize(
    ("known", "blocked"),
    [
        (("cat", 100, 0.95, 0.80), True),
        (("cat", 100, 1.0, 0.95), False),  # equal to the limit, though not in binary
        (("cat", 100, 0.95, 0.89), True),
        (("cat", 100, 0.90, 0.95), False),
        (("cat", 10, 0.9, 0.8), False),  # one row
        (("cat", 1, 1.0, 0.0), False),  # one row, the whole class
        (("cat", 10, 0.9, 0.7), True),
        (("cat", 0, float("nan"), float("nan")), False),
    ],
)
def test_a_challenger_is_blocked_by_a_lost_class(known, blocked):
    """A class must lose more than the limit, and more than the one row that is chance."""
    reason = find_blocker(comparison(known), 10, min_unknowns=10, max_class_loss=0.05)

    assert bool(reason) == blocked


def test_the_reason_names_class_recalls_and_rows():
    """The reviewer need not look up what was lost; the worst class is named."""
    classes = comparison(("cat", 100, 0.95, 0.85), ("dog", 40, 1.0, 0.5), ("cow", 9, 1.0, 1.0))

    reason = find_blocker(classes, 10, min_unknowns=10, max_class_loss=0.05)

    assert "'dog'" in reason
    assert "100 % of its 40 held-out rows, the challenger 50 %, which is 20 fewer" in reason
    assert "may lose 5 %, and what chance explains does not count. 1 more class too." in reason


def test_review_states_are_plain_words():
    """The states are what is written in tags."""
    assert set(ReviewStatus) == {
        "pending",
        "approved",
        "rejected",
        "blocked",
        "superseded",
        "expired",
        "stale",
    }


def test_one_line_says_what_was_found():
    """A window with unknowns fits a table row."""
    assert one_line(window_facts(drift=None)) == (
        "2026-01-05  unknowns  about 7 % (4-10 %)  37 rows in 2 groups  p < 0.0001"
    )


def test_one_line_of_a_quiet_window():
    """A quiet window says on how many rows nothing was found."""
    quiet = window_facts(verdict="no_change", clusters=(), drift=None, p_value=0.4)

    assert one_line(quiet) == "2026-01-05  no_change  nothing new in 1,000 rows  p = 0.4"


def test_what_was_not_assessed_never_reads_as_healthy():
    """Neither the line nor the page can be taken for a quiet window."""
    facts = not_assessed()

    line, text = one_line(facts), describe(facts, LINKS)

    assert line == "2026-01-05  NOT ASSESSED (too_few_rows)  The window has 12 rows; 50 are needed."
    assert "NOT ASSESSED" in text
    assert "This does not mean that all is well." in text
    for comfort in ("nothing new", "no_change", "0 %", "0 in 0 groups"):
        assert comfort not in line + text


def test_a_window_of_no_length_can_be_written():
    """A schedule that asks for nothing still gets its line."""
    facts = not_assessed("empty_interval", window_end=datetime(2026, 1, 5, tzinfo=UTC))

    assert one_line(facts).startswith("2026-01-05 00:00 to 2026-01-05 00:00  NOT ASSESSED")


def test_the_page_answers_a_reviewers_questions():
    """Question, numbers, groups, classes, drift, findings, method, links and commands are there."""
    text = unescape(describe(window_facts(monitor="pets"), LINKS, "7").replace("&emsp;", ""))

    for part in (
        "Window 2026-01-05: About 7 % (4-10 %) of this window is new: cat.",
        "may this model replace version 3 of cat?",
        "**Yes:** it becomes the champion.",
        "**No:** the champion stays",
        "| Window | 2026-01-05 |",
        "| Rows in the window | 1,200; 3 repeat another row |",
        "| Rows sampled | 1,000 |",
        "| Unknown rate | about 7 % (4-10 %) |",
        "| Chance if nothing were new | p < 0.0001 |",
        "p < 0.0001",
        "| Compared with | held-out rows of cat |",
        "| 1 | 30 | 50 % | cat (70 %), 8 (20 %), median confidence 81 % | cat: cat, known rows cat",
        "champion accuracy 97 %, macro F 0.968; challenger accuracy 96 %, macro F 0.951",
        "2 columns moved (20 % of those compared): cat (0.3, threshold 0.1)",
        "- Column cat is constant.",
        "1,400 reference rows, folds (k) 3, what scores rows cat, seed 0",
        "[run](http://localhost:5000/#/experiments/1/runs/a_b)",
        "`rtscv.reviewer` to your name, `rtscv.reason` to why, and last `rtscv.review` to "
        "`approved` or `rejected`",
        "rtscv-mlops review approve pets.yaml --version 7 --reviewer YOUR-NAME --reason WHY",
        "rtscv-mlops review reject pets.yaml --version 7 --reviewer YOUR-NAME --reason WHY",
        "if none waits, after `rtscv-mlops review collect pets.yaml`.",
    ):
        assert part in text


def test_the_list_of_versions_shows_plain_words_first():
    """MLflow's list shows the beginning of a page raw, so that this has no markup."""
    first, warning, _ = describe(window_facts(), LINKS).split("\n\n", 2)

    assert first == "Window 2026-01-05: About 7 % (4-10 %) of this window is new&#58; cat."
    assert warning.startswith('Answer as described below. Do not use "Promote model"')
    assert warning.endswith("the record would not show it.")


def test_a_sentence_that_begins_with_a_sign_begins_no_list():
    """Whatever the headline is, the page begins with a paragraph of its own words."""
    for sentence in ("- one", "# one", "1. one", "> one"):
        assert shape(describe(window_facts(headline=sentence), {}))[0] == "paragraph_open"


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("/srv/demo/mlruns/1/a/artifacts/report.html", True),
        ("s3://bucket/1/a/artifacts/report.html", True),
        ("C:\\mlruns\\report.html", True),
        ("/srv/`id`/report.html", ""),
        ("/" + "x" * 300, ""),
        ("ftp://ann:secret@host/report.html", "ftp://host/report.html"),
        ("javascript:alert(1)", ""),
    ],
)
def test_without_a_server_the_report_s_path_is_named(address, place):
    """Who reads "in the report" finds the way to it: whole, as code, and without a password."""
    shown = address if place is True else place

    text = describe(window_facts(), {"Report": address})

    assert (f"See: Report: `{shown}`" in text) == bool(place)
    assert "secret" not in text


def test_values_are_cut_only_where_room_is_short():
    """A category's share stands behind its value, so it goes first where a value is cut."""
    value = "delivery to a neighbour next door (34%)"
    feature = TellingFeature(name="kind", here=value, known="-", effect=0.3)

    few, many = (
        (
            ClusterCard(
                number=1,
                size=9,
                share=1.0,
                quality=None,
                called={},
                confidence=None,
                features=(feature,),
            ),
        ),
        window_facts("long_name" * 30, many=40),
    )

    assert value in describe(window_facts(clusters=few), LINKS)
    assert value not in describe(many.model_copy(update={"clusters": few}), LINKS)


def test_commands_name_the_file_as_it_was_typed():
    """A reader who typed a path gets commands with that path, quoted for a shell."""
    shown = describe(window_facts(monitor="pets"), LINKS, "7", "my demo/pets.yaml")

    assert "review approve 'my demo/pets.yaml' --version 7" in shown
    assert "review reject 'my demo/pets.yaml' --version 7" in shown
    assert "`rtscv-mlops review collect 'my demo/pets.yaml'`" in shown


def test_the_worst_class_comes_first():
    """Of many classes those are shown that lose most, and the rest are counted."""
    classes = [(f"class{number}", 100, 0.9, 0.9 - number / 100) for number in range(10)]
    no_rows = ("absent", 0, float("nan"), float("nan"))

    text = describe(window_facts(comparison=comparison(no_rows, *classes)), LINKS)

    assert re.findall(r"class\d", text) == [f"class{number}" for number in (9, 8, 7, 6, 5, 4)]
    assert "Largest loss first" in text
    assert "and 5 more classes, in the report." in text


def test_a_blocked_challenger_is_not_offered():
    """The reason stands where the question would be, and no way to approve is shown."""
    text = describe(window_facts(blocked="Class 'dog' loses too much."), LINKS)

    assert "**Blocked, cannot be approved.** Class 'dog' loses too much." in text
    assert "approve " not in text
    assert "`approved`" not in text
    assert "review reject" not in text  # The record has an end of this review, and refuses both.


def test_a_quiet_window_asks_nothing():
    """Without a challenger there is neither question nor command."""
    text = describe(window_facts(verdict="no_change", clusters=(), comparison=None), LINKS)

    assert "There is nothing to decide" in text
    assert "rtscv-mlops review" not in text


@pytest.mark.parametrize("text", HOSTILE)
def test_data_stays_text_on_the_page(text):
    """Whatever a label or column is called, the page has the shape it has for a harmless name."""
    hostile = describe(window_facts(text, many=1), LINKS)
    harmless = describe(window_facts("cat", many=1), LINKS)

    assert shape(hostile) == shape(harmless)
    assert hostile.count("|") == harmless.count("|")
    assert "{{" not in hostile
    assert "{%" not in hostile


@pytest.mark.parametrize("text", HOSTILE[:-4])
def test_data_is_still_readable(text):
    """Escaping changes how a name is written, not how it reads; only layout is lost."""
    shown = "".join(token.content for token in page(f"x {markdown(text, 500)}")[2:-1])

    assert shown.replace("\u200b", "") == f"x {' '.join(text.split())}"


@pytest.mark.parametrize("text", HOSTILE)
def test_no_renderer_finds_an_address_in_data(text):
    """Also one that decodes first and looks for bare addresses then finds none."""
    decoded = unescape(markdown(text, 500))

    assert not re.search(r"https?://\w|www\.|\w@\w", decoded)


def test_a_name_of_nothing_is_shown():
    """A label of invisible characters leaves no hole in the page."""
    assert plain("right\u202eleft\u200b\u2066\ud800") == "rightleft"
    assert markdown("\u200b\x00") == "(no text)"


@pytest.mark.parametrize(
    ("monitor", "file"),
    [
        ("pets", "pets.yaml"),
        ("--force", "force.yaml"),
        ("a; rm -rf ~ `id` $(id)", "arm-rfidid.yaml"),
        ("\n", "monitor.yaml"),
    ],
)
def test_commands_can_be_pasted(monitor, file):
    """A reviewer who pastes the command runs our command and nothing else."""
    text = describe(window_facts(monitor=monitor), LINKS, "7")

    assert f"review approve {file} --version 7" in text


@pytest.mark.parametrize(
    ("address", "link"),
    [
        ("http://user:secret@host:5000/#/a_b?x=1", "http://host:5000/#/a_b?x=1"),
        ("https://host/a) [b](c d", "https://host/a%29%20%5Bb%5D%28c%20d"),
        ("javascript:alert(1)", ""),
        ("data:text/html,x", ""),
        ("/tmp/report.html", ""),
        ("http://[broken", ""),
        ("http://", ""),
    ],
)
def test_links_are_web_addresses_without_secrets(address, link):
    """No password of a tracking server gets onto the page, and nothing that is no web address."""
    assert safe_link(address) == link
    assert (f"[run]({link})" in describe(window_facts(), {"run": address})) == bool(link)


def test_a_crowded_page_says_what_it_leaves_out():
    """A page that would not fit names the sections it lacks; the answer's commands stay."""
    text = describe(window_facts("|" * 200, many=40), LINKS)

    assert re.search(r"Left out for length: .*drift.*\. The report has all of it\.", text)
    assert "**Drift**" not in text
    assert "**What is new**" in text
    assert "review approve" in text
    assert len(text) < DESCRIPTION_LIMIT


def test_long_names_leave_room_for_the_comparison():
    """Whatever else must go, a reviewer sees what the challenger does to the known classes."""
    text = describe(window_facts("long_name" * 30, many=40), LINKS)

    assert "**Champion against challenger**" in text
    assert text.index("**Numbers**") < text.index("**Champion against challenger**")


@settings(max_examples=60, deadline=None)
@given(text=st.text(min_size=1) | st.sampled_from(HOSTILE), many=st.integers(0, 60))
def test_every_page_fits_and_holds(text, many):
    """Any names, in any number, give a page that MLflow can store and that keeps its shape."""
    blocked = text if many % 2 else ""

    written = describe(window_facts(text, many=many, blocked=blocked), {text: LINKS["run"]} | LINKS)

    assert len(written) < DESCRIPTION_LIMIT
    written.encode()
    types = shape(written)
    assert types.count("fence") == (0 if blocked else 1)
    assert "image" not in types
    assert not [kind for kind in types if kind.startswith("html")]
    hosts = {
        urlsplit(token.attrs["href"]).netloc for token in page(written) if "href" in token.attrs
    }
    assert hosts <= {"localhost:5000", "x.example"}


@settings(deadline=None)
@given(text=st.text(), width=st.integers(1, 100))
def test_plain_text_is_one_short_printable_line(text, width):
    """Names cannot start a line, move the cursor, hide, or fill the screen."""
    line = plain(text, width)

    assert len(line) <= width
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]", line)
    assert line.splitlines() in ([], [line])


def test_a_class_is_not_taught_from_a_few_rows():
    """Fewer unknown rows than the limit block a challenger, and the sentence says both numbers."""
    compared = comparison(("cat", 100, 1.0, 1.0))
    enough, too_few = (
        find_blocker(compared, unknowns, min_unknowns=10, max_class_loss=0.05)
        for unknowns in (10, 4)
    )

    assert enough == ""
    assert re.search(r"Only 4 rows .* fewer than the 10 that review\.min_un", too_few)
