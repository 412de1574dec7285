"""What holds of any text, name, setting, label and score: names stay safe, text stays text."""

import json
import re
from html import unescape
from types import SimpleNamespace
from urllib.parse import urlsplit

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import assume, example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from rtscv_mlops.alerts.alert import Alert
from rtscv_mlops.config.loading import load_monitor
from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.config.values import SECRET_WORDS, names_a_secret, secret_in
from rtscv_mlops.errors import ConfigError, InputError
from rtscv_mlops.estimator.checks import Labels
from rtscv_mlops.estimator.rows import Numbers, fingerprints
from rtscv_mlops.estimator.statistics import Margins, estimate_rate, stratified_p_value
from rtscv_mlops.facts import ClassComparison, Comparison, WindowFacts
from rtscv_mlops.judging.contest import find_blocker
from rtscv_mlops.metrics import auroc, fpr_at_tpr, open_set_scores
from rtscv_mlops.outcomes import Verdict
from rtscv_mlops.pipeline.stages import window_key
from rtscv_mlops.text import (
    LONGEST,
    caption,
    commonmark,
    inert,
    listed,
    markdown,
    percent,
    plain,
    safe_link,
    shown,
)
from rtscv_mlops.tracking.journal import shortened
from rtscv_mlops.tracking.ledger import experiment_name, safe_name
from rtscv_mlops.tracking.runs import artifact_path, entry_name
from rtscv_mlops.window import Interval
from tests.properties import NASTY, PRINTABLE, TEXTS, tried

SAFE = re.compile(r"[A-Za-z0-9._-]+")
SHARES = st.floats(0, 1)
MARKDOWN = MarkdownIt("gfm-like", {"linkify": False})


# Names


@tried()
@given(TEXTS, st.integers(20, 250))
def test_safe_names_are_safe(text, limit):
    """Any text becomes a name of letters, digits, dots and dashes, within the limit, and stays."""
    name = safe_name(text, limit)

    assert SAFE.fullmatch(name)
    assert len(name) <= limit
    assert name not in (".", "..")
    assert safe_name(name, limit) == name


@tried()
@given(TEXTS, TEXTS)
def test_two_names_stay_two(one, other):
    """Models of different names never share an experiment, hence never a ledger."""
    assume(one.encode("utf-8", "replace") != other.encode("utf-8", "replace"))

    assert experiment_name(one) != experiment_name(other)


@tried()
@given(st.lists(st.sampled_from([*NASTY, "..", ".", "", "a", "b.txt"]) | st.text(max_size=8)))
@example(["x" * 251])
def test_no_artifact_leaves_its_folder(parts):
    """A path for an artifact stays below the run's folder, or is refused by name."""
    name = "/".join(parts)
    if all(SAFE.fullmatch(part) and part == part.strip(".") for part in name.split("/")) and all(
        len(part) <= 250 for part in name.split("/")
    ):
        assert artifact_path(name) == name
        return

    with pytest.raises(InputError, match="cannot be the name of an artifact"):
        artifact_path(name)


@tried()
@given(TEXTS)
def test_names_of_params_fit(text):
    """Any name of a setting becomes one that MLflow takes."""
    name = entry_name(text)

    assert len(name) <= 250
    assert all(SAFE.fullmatch(part) for part in name.split("/"))


# Text that comes from data


@tried()
@given(TEXTS, st.integers(1, 300))
def test_shortened_text_fits(text, limit):
    """What goes into a record is printable and within its limit, and shortening again is idle."""
    kept = shortened(text, limit)

    assert len(kept) <= limit
    assert all(sign.isprintable() or sign in "\n\t" for sign in kept)
    assert shortened(kept, limit) == kept


@tried()
@given(TEXTS)
def test_descriptions_show_text_as_text(text):
    """What a renderer shows of a name is the name: no link, image, tag, emphasis or code."""
    (block,) = [token for token in MARKDOWN.parse(f"x {markdown(text, 20_000)}") if token.children]
    shown_text = "".join(token.content for token in block.children)

    assert {token.type for token in block.children} <= {"text", "text_special"}
    assert shown_text.replace("\u200b", "") == f"x {plain(text, 20_000) or '(no text)'}"


@tried()
@given(TEXTS)
def test_reports_show_text_as_text(text):
    """The same in the report, whose pages also pass through a script block and a plot."""
    shown_text = commonmark(text, 10_000)
    (block,) = [token for token in MARKDOWN.parse(f"x {shown_text}") if token.children]

    assert {token.type for token in block.children} <= {"text", "text_special"}
    assert "".join(each.content for each in block.children) == f"x {caption(text, 10_000)}"


@tried()
@given(
    st.recursive(TEXTS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner))
)
def test_no_data_ends_a_script(data):
    """Made inert, no text at any depth, key or value, holds a sign that opens or ends a tag."""
    written = json.dumps(inert(data), ensure_ascii=False)

    assert not set("<>") & set(written)
    assert written.count('"') == json.dumps(data, ensure_ascii=False).count('"')


def facts_of(text, **changes):
    """A window in which every text that data can choose is `text`."""
    day = Interval.day("2026-01-05")
    texts = dict.fromkeys(("monitor", "model", "champion_version", "verdict", "headline"), text)
    return WindowFacts(key="k", window_start=day.start, window_end=day.end, **{**texts, **changes})


@tried()
@given(TEXTS)
def test_alerts_hold_no_markup(text):
    """A subject is one line, no line of an alert was written by data, and none holds a tag."""
    assume(text not in set(Verdict))  # which have lines of their own
    alert = Alert(facts_of(text), why=text)
    lines = alert.text.split("\n")

    assert len(alert.subject.splitlines()) == 1
    assert len(lines) == len(Alert(facts_of("x"), why="x").text.split("\n"))
    assert not re.search(r"[<>\x00-\x08\x0b-\x1f]|://", alert.subject + alert.text)
    assert json.loads(json.dumps(alert.payload(), allow_nan=False)) == alert.payload()


@tried()
@given(TEXTS, SHARES | st.none(), st.integers(0, 10**12))
def test_facts_survive_their_file(text, share, rows):
    """What is stored of a window is what is read back, whatever its words."""
    assume(text.isprintable())
    facts = facts_of(text, unknown_rate=share, rows=rows, findings=(text,), settings={text: share})

    assert WindowFacts.model_validate_json(facts.model_dump_json()) == facts


@tried()
@given(TEXTS | st.from_regex(r"https?://[a-z:@.\[\]()_* ]{1,30}", fullmatch=True))
def test_links_carry_neither_secrets_nor_markup(address):
    """A link is a web address without user and password that Markdown takes whole, or nothing."""
    link = safe_link(address)

    if link:
        parts = urlsplit(link)
        assert parts.scheme in ("http", "https")
        assert "@" not in parts.netloc
        assert not set(link) & set('()[]<>*`|\\" \n')
    assert safe_link(link) == link


@tried()
@given(st.lists(TEXTS | st.integers() | st.none(), max_size=12))
def test_examples_in_sentences_are_short(values):
    """Names and values of strangers are quoted in few words, whatever their length."""
    assert all(len(shown(value)) <= LONGEST for value in values)
    assert len(listed(values)) <= 5 * (LONGEST + 2) + len(" and 99 more")
    assert "\n" not in listed(values)


@tried()
@given(st.floats(0, 1, exclude_min=True, exclude_max=True))
def test_no_share_is_rounded_to_none_or_all(share):
    """Something is never written as nothing, nor nearly all as all."""
    assert percent(share) not in ("0 %", "100 %")


# Settings


def monitor_of(**changes):
    """The smallest monitor, but for the changes."""
    source = {"path": "/served", "timestamp": "at"}
    return Monitor.model_validate(
        {"name": "m", "model": {"name": "a"}, "source": source, **changes}
    )


MONITORS = st.fixed_dictionaries(
    {},
    optional={
        "model": st.fixed_dictionaries(
            {"name": PRINTABLE.filter(lambda text: re.fullmatch(r"[^/:]*[^/:.][^/:]*", text))},
            optional={"columns": st.lists(PRINTABLE.filter(bool), min_size=1, unique=True)},
        ),
        "source": st.fixed_dictionaries(
            {"path": st.just("/served/*.csv"), "timestamp": PRINTABLE.filter(bool)},
            optional={
                "timezone": st.sampled_from(["UTC", "Asia/Kathmandu"]),
                "max_bytes": st.integers(10**6, 10**15),
                "csv": st.fixed_dictionaries({"null_values": st.lists(PRINTABLE, max_size=4)}),
            },
        ),
        "rectify": st.fixed_dictionaries(
            {},
            optional={
                "alpha": st.floats(1e-300, 0.999),
                "sample_rate": st.just("auto") | st.floats(1e-3, 1e6),
                "unknown_label": PRINTABLE.filter(bool) | st.integers(-(10**16), 10**16),
                "seed": st.integers(0, 2**32 - 1),
            },
        ),
        "alert": st.fixed_dictionaries(
            {"cooldown": st.from_regex(r"[0-9]{1,6}[smhdw]", fullmatch=True)},
            optional={"min_rate": SHARES, "of": st.integers(1, 100)},
        ),
        "airflow": st.fixed_dictionaries({}, optional={"tags": st.lists(PRINTABLE, max_size=3)}),
        "baseline": st.fixed_dictionaries({"first": st.integers(1, 100)}),
    },
)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    """A file that is written again and again."""
    return tmp_path_factory.mktemp("properties") / "m.yaml"


@tried(0.5)
@given(MONITORS)
def test_monitors_survive_their_file(scratch, changes):
    """A monitor that is written down, with all its defaults, is the monitor that is read."""
    assume(all(len(text) <= 250 for text in _texts(changes)))
    monitor = monitor_of(**changes)
    plain = monitor.model_dump(mode="json")

    scratch.write_text(json.dumps(plain, ensure_ascii=False))
    assert load_monitor(scratch) == monitor
    assert load_monitor(scratch).result_settings() == monitor.result_settings()


def _texts(value):
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        return [text for each in value for text in _texts(each)]
    return [str(value)]


@tried(0.5)
@given(
    st.sampled_from(sorted(SECRET_WORDS)),
    st.sampled_from(["{}", "my_{}", "{}-id", "x.{}", "client{}", "{}Value"]),
    st.booleans(),
)
def test_secrets_in_options_are_refused(scratch, word, form, capital):
    """An option whose name promises a secret is refused, and its value is not repeated."""
    name = form.format(word.capitalize() if form == "client{}" or capital else word)
    settings = {"path": "/served", "timestamp": "at", "storage_options": {name: "canary-4711"}}
    scratch.write_text(yaml.safe_dump({"model": {"name": "a"}, "source": settings}))

    assert names_a_secret(name)
    with pytest.raises(ConfigError, match="secret") as refused:
        load_monitor(scratch)
    assert "canary-4711" not in str(refused.value)


@tried(0.5)
@given(
    st.sampled_from(["http", "s3", "postgresql+psycopg2", "abfss"]),
    st.from_regex(r"[A-Za-z0-9._~%!$&'()*+,;=-]{1,20}", fullmatch=True),
)
def test_passwords_in_addresses_are_refused(scratch, scheme, word):
    """No address with a password in it is taken, and the message does not repeat it."""
    secret = f"canary-{word}"
    address = f"{scheme}://user:{secret}@host/place"
    settings = {"path": address, "timestamp": "at"}
    scratch.write_text(json.dumps({"model": {"name": "a"}, "source": settings}))

    assert secret_in(address)
    with pytest.raises(ConfigError, match="Keep secrets out of the file") as refused:
        load_monitor(scratch)
    assert secret not in str(refused.value)


@tried()
@given(st.datetimes(), st.timezones() | st.none())
def test_moments_are_read_as_they_are_written(moment, zone):
    """A moment in a monitor is the same moment in UTC, whatever zone it was written in."""
    moment = moment.replace(second=moment.second, microsecond=0, tzinfo=zone)
    written = moment.isoformat()
    assume(re.fullmatch(r".{19}([+-]\d{2}:\d{2})?", written))
    assume(2 < moment.year < 9998)
    start = monitor_of(airflow={"start": written}).airflow.start

    assert start.utcoffset().total_seconds() == 0
    assert start.replace(tzinfo=None) == (
        moment.replace(tzinfo=None) - (moment.utcoffset() or start.utcoffset())
    )


@tried()
@given(st.sampled_from(["digest", "version", "seed", "max_bytes", "nothing"]), TEXTS)
def test_keys_change_with_what_decides(change, text):
    """The key of a window is the same at each try, and another one if anything that counts is."""
    day = Interval.day("2026-01-05")

    def key(digest="d", version="1", **settings):
        monitor = monitor_of(rectify={"seed": settings.get("seed", 0)}, source={
            "path": "/served", "timestamp": "at", "max_bytes": settings.get("max_bytes", 10**9)
        })  # fmt: skip
        window = SimpleNamespace(interval=day, digest=digest)
        return window_key(monitor, SimpleNamespace(version=version), window)

    changes = {"digest": text + "d2", "version": text + "2", "seed": 1, "max_bytes": 10**8}
    changed = key(**{change: changes[change]}) if change in changes else key()
    assert (changed == key()) == (change in ("max_bytes", "nothing"))
    assert SAFE.fullmatch(changed)


# Labels and scores

LABELS = (
    st.lists(st.integers(-(2**31), 2**31), min_size=2, unique=True, max_size=8)
    | st.lists(TEXTS.filter(lambda text: "\0" not in text), min_size=2, unique=True, max_size=8)
    | st.just([True, False])
)


@tried()
@given(LABELS, st.sampled_from([None, "unknown", -1, "new one"]))
def test_labels_survive_the_map(names, unknown):
    """Users get their own labels back, and unknowns a name that no class has."""
    assume(unknown not in names)
    labels = Labels.of(np.array(names)).name_unknown(unknown)
    public = labels.public(labels.taught).tolist()

    assert public[:-1] == sorted(names)
    assert public[-1] not in names
    assert unknown is None or public[-1] == unknown
    assert labels.known[labels.codes(np.array(names))].tolist() == names


KNOWN = ["a", "b", "c"]
PREDICTED = st.sampled_from([*KNOWN, "?"])
ROWS = st.lists(
    st.tuples(st.sampled_from([*KNOWN, "new", "newer"]), PREDICTED, st.integers(-50, 50)),
    min_size=1,
    max_size=40,
)


def scores_of(rows, names=None):
    """Every score of some rows, whose classes may be called otherwise."""
    called = names or {}
    true, predicted, score = zip(*rows, strict=True)
    true, predicted = ([called.get(label, label) for label in some] for some in (true, predicted))
    known = [called.get(label, label) for label in KNOWN]
    found = open_set_scores(true, predicted, score, known, called.get("?", "?"))
    return [getattr(found, name) for name in found.__slots__]


@tried(0.5)
@given(ROWS, st.randoms(use_true_random=False))
def test_scores_are_shares_and_know_no_order(rows, shuffle):
    """Every score is within 0 and 1 or not defined, and the order of rows does not matter."""
    scores = scores_of(rows)
    mixed = list(rows)
    shuffle.shuffle(mixed)

    assert all(np.isnan(score) or 0 <= score <= 1 for score in scores)
    np.testing.assert_allclose(scores_of(mixed), scores)


@tried(0.5)
@given(ROWS, st.permutations(["x", "y", "z", "other"]))
def test_renaming_classes_only_renames(rows, names):
    """Scores do not depend on what the classes and the unknowns are called."""
    called = dict(zip([*KNOWN, "?"], names, strict=True))

    np.testing.assert_allclose(scores_of(rows, called), scores_of(rows))


@tried(0.5)
@given(st.lists(st.tuples(st.booleans(), st.integers(-99, 99)), min_size=1), st.floats(0.01, 1))
def test_rankings_depend_on_order_only(rows, share):
    """Stretching scores changes nothing; turning them round turns the area round."""
    is_unknown, score = (np.array(column) for column in zip(*rows, strict=True))
    stretched = np.exp(score / 50) * 7 - 3

    np.testing.assert_allclose(auroc(is_unknown, stretched), auroc(is_unknown, score))
    np.testing.assert_allclose(auroc(is_unknown, -score), 1 - auroc(is_unknown, score), atol=1e-12)
    np.testing.assert_allclose(
        fpr_at_tpr(is_unknown, stretched, share), fpr_at_tpr(is_unknown, score, share)
    )


@tried()
@given(
    st.lists(st.tuples(SHARES, SHARES, st.integers(1, 10**6)), min_size=1, max_size=5),
    SHARES,
    SHARES,
)
def test_a_stricter_gate_blocks_no_less(classes, limit, other):
    """A challenger that a lenient limit blocks is blocked by a strict one; one row never blocks."""
    compared = Comparison(
        how="", rows=1, champion_accuracy=1, challenger_accuracy=1, champion_macro_f=1,
        challenger_macro_f=1, classes=tuple(
            ClassComparison(label=str(at), rows=n, champion=was, challenger=now, unknown=0)
            for at, (was, now, n) in enumerate(classes)
        ),
    )  # fmt: skip
    strict, lenient = sorted((limit, other))

    by_strict, by_lenient = (
        find_blocker(compared, 1, min_unknowns=1, max_class_loss=loss) for loss in (strict, lenient)
    )
    assert not by_lenient or by_strict
    if all(was - now <= 1.4 / n for was, now, n in classes):
        assert by_strict == ""


# The method

MARGINS = st.lists(st.tuples(st.integers(-40, 40), st.integers(0, 2)), min_size=3, max_size=60)


@tried(0.5)
@given(MARGINS, MARGINS, st.randoms(use_true_random=False))
def test_evidence_is_a_probability(null, window, shuffle):
    """The p-value and the rate are within 0 and 1, the rate in its interval, in any order."""

    def of(rows):
        margin, nearest = zip(*rows, strict=True)
        return Margins.of(np.array(margin) / 8, np.array(nearest), np.arange(len(rows)))

    p_value = stratified_p_value(of(null), of(window))
    rate, (low, high) = estimate_rate(of(null), of(window))
    mixed = list(window)
    shuffle.shuffle(mixed)

    assert 0 <= p_value <= 1
    assert 0 <= low <= rate <= high <= 1
    assert np.isclose(stratified_p_value(of(null), of(mixed)), p_value)
    assert np.isclose(estimate_rate(of(null), of(mixed))[0], rate)


CELLS = st.floats(allow_nan=True, allow_infinity=True, width=64)


@tried(0.5)
@given(st.lists(st.tuples(CELLS, CELLS, st.sampled_from("abc")), min_size=2, max_size=20))
def test_any_table_becomes_finite_numbers(rows):
    """Gaps, infinities, huge and tiny values and text give finite numbers, row by row."""
    table = pd.DataFrame(rows, columns=["x", "y", "word"])
    numbers = Numbers().fit(table)
    whole = numbers.transform(table)

    assert np.isfinite(whole).all()
    np.testing.assert_array_equal(numbers.transform(table.iloc[::-1]), whole[::-1])


@tried(0.5)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab")), min_size=1, max_size=20))
def test_copies_are_equal_rows(rows):
    """Two rows have one fingerprint if and only if they are equal."""
    prints = fingerprints(pd.DataFrame(rows, columns=["x", "word"]))

    assert len(set(prints.tolist())) == len(set(rows))
    assert all((prints[0] == prints[at]) == (rows[0] == rows[at]) for at in range(len(rows)))


@tried()
@given(TEXTS)
def test_registry_pages_hold_no_address(text):
    """Also a renderer that decodes entities first finds no address in a name."""
    assert not re.search(r"https?://\w|www\.|\w@\w", unescape(markdown(text, 20_000)), re.I)
