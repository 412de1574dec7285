"""Monitor files that are refused: what a refusal says, and that nothing else comes out."""

from functools import partial
from textwrap import dedent

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rtscv_mlops.config.inputs import resolve_options
from rtscv_mlops.config.loading import load_monitor
from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.config.schema import monitor_schema
from rtscv_mlops.errors import ConfigError
from tests.monitors import FULL, MINIMAL, refusal, with_lines, write_monitor


@pytest.fixture
def write(tmp_path):
    """Writes a monitor file into a folder of its own and returns where it is."""
    return partial(write_monitor, tmp_path)


@pytest.mark.parametrize(
    ("section", "lines", "message"),
    [
        ("model", "alais: b", "model.alais: unknown setting; did you mean alias?"),
        ("model", "alias: a\nalias: b", "is given twice, on lines 3 and 4"),
        ("model", "alias: Latest", "reserved by MLflow"),
        ("model", "alias: v1", "reserved by MLflow"),
        ("model", "alias: challenger", "challenger is reserved for the version under review"),
        ("model", "alias: previous_champion", "previous_champion is reserved for the version that"),
        ("model", "alias: a@b", "must be made of letters"),
        ("model", "alias: no", "put it in quotes if it is text, otherwise write true or false"),
        ("model", "alias: On", "On is text in one version of YAML and a boolean in another"),
        ("model", "alias: 012", "012 is text in one version of YAML and a number in another"),
        ("model", "alias: 12:30", "12:30 is text in one version of YAML"),
        ("model", "alias: 1e3", "must be text, not 1000.0; put it in quotes if it is text"),
        ("model", "alias: 5", "must be text, not 5; put it in quotes if it is text"),
        ("model", "alias: true", "must be text, not true; put it in quotes if it is text"),
        ("model", "alias: [a]", "must be text, not a list"),
        ("model", 'alias: "a\\0"', "contains a control character"),
        ("model", 'alias: "\\ud800"', "contains a control character"),
        ("model", "allow_pickle: 1", "must be true or false, not 1"),
        ("model", "columns: a", "must be a list such as [a, b], not 'a'"),
        ("model", "columns: [a, b, a]", "lists a more than once"),
        ("model", "columns: []", "must be a list with at least 1 item, not an empty list"),
        ("model", 'columns: [""]', "columns[0]: must be at least 1 character long"),
        ("model", "fit: train", "must be written like package.module:function"),
        ("model", "tracking_uri: a\ntracking_uri_env: B", "tracking_uri or tracking_uri_env, not"),
        ("source", "timezone: Europe/Zurch", "is not a valid time zone; use one such as UTC or"),
        ("source", "timezone: ../../etc/passwd", "is not a valid time zone"),
        ("source", "label: served_at", "cannot be the label and also the timestamp, key or"),
        ("source", "origin: who\nlabel: who", "the label and also the timestamp, key or origin"),
        ("canary", "rate: 0.6", "canary.rate: must be"),
        ("compute", "engine: dusk", "compute.engine: must be local or dask, not 'dusk'"),
        ("compute", "engine: dask", "needs either address or address_env; neither is set"),
        ("compute", "engine: dask\naddress: tcp://a:1\naddress_env: A", "both are set"),
        ("compute", "address: tcp://a:8786", "address needs engine: dask"),
        ("compute", "engine: dask\naddress: a:8786", "an address that begins with tcp://, tls://"),
        ("compute", "engine: dask\naddress: ws://ann:x@a", "contains a user or password"),
        ("compute", "jobs: 0", "compute.jobs: must be at least 1, not 0"),
        ("source", "url: sqlite:///a", "url belongs to a table or query, not to a path"),
        ("source", "csv: {encoding: utf-7x}", "is not an encoding that Python supports"),
        ("source", 'csv: {decimal: ","}', "cannot be both the delimiter and the decimal"),
        ("source", "csv: {decimal: x}", "csv.decimal: must be '.' or ',', not 'x'"),
        ("source", "storage_options: {a: [1]}", "storage_options.a: must be text or a whole"),
        ("rectify", "alpha: 0", "rectify.alpha: must be greater than 0, not 0"),
        ("rectify", "alpha: 1.5", "rectify.alpha: must be less than 1, not 1.5"),
        ("rectify", "alpha: .nan", "otherwise write a plain decimal number"),
        ("rectify", "alpha: 1e999", "is too large for a number"),
        ("rectify", "cv: 1", "rectify.cv: must be at least 2, not 1"),
        ("rectify", "cv: true", "must be a whole number, not true"),
        ("rectify", "cv: many", "must be a whole number, not 'many'"),
        ("rectify", 'cv: "3"', "must be a whole number, not '3'"),
        ("rectify", "seed: 1e3", "must be a whole number, not 1000.0"),
        ("rectify", "seed: 1_000", "otherwise write a plain decimal number"),
        ("rectify", "seed: 0x10", "otherwise write a plain decimal number"),
        ("rectify", f"seed: {'9' * 5000}", "is too large for a number"),
        ("rectify", "seed: 4294967296", "must be at most 4294967295, not 4294967296"),
        ("rectify", "gate: forst", "must be auto, kernel, forest, network or estimator, not 'fo"),
        ("rectify", "gate: forst", "did you mean forest?"),
        ("rectify", "sample_rate: -1", "must be auto or greater than 0, not -1"),
        ("rectify", "unknown_label: no", "no is text in one version of YAML"),
        ("rectify", "unknown_label: true", "must be text or a whole number, not true; put it"),
        ("rectify", "min_rows: 200\nmax_rows: 100", "max_rows 100 is below min_rows 200"),
        ("rectify", "min_rows: 2", "min_rows 2 is below the 3 folds of cv"),
        ("drift", "num_method: kss", "did you mean ks?"),
        ("baseline", "start: 2026-01-05", "a baseline period needs both start and end"),
        ("baseline", "start: 2026-01-05\nend: 2026-01-04T23:00", "is not before end"),
        ("baseline", "start: 2026-02-30", "is not a valid time: day is out of range"),
        ("baseline", "start: monday", "must be a time such as 2026-01-05"),
        ("baseline", "start: 0001-01-01T00:00+02:00", "is not a valid time: out of range"),
        ("alert", "on: [drft]", "alert.on[0]: must be unknowns, unknowns_and_drift, drift or"),
        ("alert", "cooldown: 1 day", "must be a duration such as 90s, 30m, 12h, 1d or 2w"),
        ("alert", "cooldown: 5", "must be a duration such as 12h, not 5"),
        (
            "airflow",
            "schedule: daily",
            "must be a cron expression of five fields, such as 0 2 * * *",
        ),
        ("airflow", "resources: {cpu: 1, memory: 2GB}", "must be an amount such as 512Mi or 2Gi"),
        ("airflow", "notifiers: {Slack: {}}", "must be the import path of a class, such as"),
        ("alert", "windows: 3", "windows 3 is above of 1, so no alert could be sent"),
        ("alert", "webhook_url: ftp://x", "must be an address that begins with https://"),
        ("alert", "webhook_url: http://x\nwebhook_url_env: X", "or webhook_url_env, not both"),
        ("alert", "email: {to: [nobody]}", "alert.email.to[0]: must be an e-mail address"),
        (
            "alert",
            "email: {to: [a@b], user_env: U}",
            "set both user_env and password_env, or neither",
        ),
        ("review", "expires: 0d", "must be greater than zero"),
        ("report", "columns: all", "must be model or none or a list such as [a, b], not 'all'"),
    ],
)
def test_a_wrong_setting_is_shown_with_its_line(write, section, lines, message):
    """Each mistake says where it is, what is wrong, and what to write instead."""
    text = with_lines(**{section: lines})
    last = lines.splitlines()[-1]
    expected = {text[: text.index(f"  {last}\n")].count("\n") + 1}
    if "is given twice" in message:
        expected = {3}

    mistakes = refusal(write(text))

    assert {line for line, what in mistakes if message in what} == expected, mistakes


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (MINIMAL + "rectfy: {cv: 3}\n", 6, "rectfy: unknown setting; did you mean rectify?"),
        (MINIMAL + "zzz: 1\n", 6, "zzz: unknown setting; available here: airflow, alert, baseline"),
        (MINIMAL + "<<: {drift: {}}\n", 6, "<<: unknown setting"),
        (MINIMAL + '"a\\nb\\e": 1\n', 6, "a\\nb\\x1b: unknown setting"),
        (MINIMAL + "? [a]\n: b\n", 1, "has a key on line 6 that is not text"),
        (MINIMAL + "model: {name: b}\n", 1, "model: is given twice, on lines 1 and 6"),
        (MINIMAL + "drift: [1]\n", 6, "must be a section with one `name: value` per line"),
        (MINIMAL + "drift:\n", 6, "but is empty; remove the line to use the default"),
        ("name: a/b\n" + MINIMAL, 1, "must be made of letters, digits, dots"),
        ("model:\n  name: a/b\n", 2, "must be a name without / and :"),
        ("model:\n  name: ..\n", 2, "must be a name without / and :"),
        ("model: {name: a}\n", 1, "source: is missing. The production data to monitor"),
        ("source: {}\nmodel: {}\n", 2, "model.name: is missing. Name of the registered model"),
        (with_lines(model="columns:\n- a\n- 5"), 5, "model.columns[1]: must be text, not 5"),
        (with_lines(source="table: rows"), 4, "path and table are set"),
        (MINIMAL.replace("path: windows/", "key: a"), 3, "path, table and query; none is set"),
        (MINIMAL.replace("path: windows/", "table: a"), 4, "a table needs url or url_env"),
        (
            with_lines(model="columns: [a, b]", source="label: b"),
            4,
            "source.label b is also listed in model.columns, but a label cannot be a feature",
        ),
        (
            with_lines(labels="path: late/\nkey: id\nlabel: truth"),
            6,
            "labels are joined by key: set source.key to its column",
        ),
        (
            with_lines(report="key: true"),
            6,
            "report.key needs a key: set source.key to its column",
        ),
        (
            with_lines(baseline="start: 2026-01-05\nend: 2026-01-06\nfirst: 3"),
            7,
            "set either start and end, or first",
        ),
    ],
)
def test_a_wrong_file_is_shown_with_its_line(write, text, line, message):
    """So does a mistake in what surrounds the settings, or in how they go together."""
    mistakes = refusal(write(text))

    assert [at for at, what in mistakes if message in what] == [line], mistakes


def test_all_mistakes_are_listed_at_once(write):
    """Typos, traps, types, ranges, secrets and conflicts show together, in the file's order."""
    text = dedent("""\
    model:
      nmae: digits
      alias: v3
      columns: [a, no]
      columns: [b]
    source:
      path: windows/
      timestamp: 012
      storage_options: {key: abc, retries: [1]}
    rectify:
      alpha: 1
      max_rows: 60
      min_rows: 100
      sed: 1
    alert:
      windows: 3
      email: {to: nobody}
    """)

    places = [f"{line} {what.split(':')[0]}" for line, what in refusal(write(text))]

    assert places == [
        "1 model.name",
        "2 model.nmae",
        "3 model.alias",
        "4 model.columns",
        "4 model.columns[1]",
        "8 source.timestamp",
        "9 source.storage_options.key",
        "9 source.storage_options.retries",
        "11 rectify.alpha",
        "12 rectify",
        "14 rectify.sed",
        "16 alert",
        "17 alert.email.to",
    ]


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        (MINIMAL.replace("path:", "pth:"), (4, "source.pth: unknown setting; did you mean path?")),
        (
            with_lines(rectify="cv: 1\nmin_rows: 2"),
            (7, "rectify.cv: must be at least 2, not 1"),
        ),
    ],
)
def test_nothing_is_reported_twice(write, text, mistake):
    """A failure that only follows from another mistake is not listed."""
    assert refusal(write(text)) == [mistake]


def test_a_flood_of_mistakes_is_cut(write):
    """Thousands of mistakes are neither computed nor printed; a hundred are enough to begin."""
    text = MINIMAL + "".join(f"key{number}: no\n" for number in range(10_000))

    with pytest.raises(
        ConfigError, match=r"There may be more mistakes\. Fix these first"
    ) as caught:
        load_monitor(write(text))

    assert len(str(caught.value).splitlines()) == 102


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(
            "", r"digits.yaml is empty\. A monitor needs at least model\.name", id="empty"
        ),
        pytest.param("# only\n---\n", "is empty", id="comment"),
        pytest.param("- a\n- b\n", "has no settings", id="list"),
        pytest.param("text", "has no settings", id="text"),
        pytest.param(MINIMAL + "---\na: 1\n", r"yaml:6: starts a second document", id="documents"),
        pytest.param("model: {name: a", r"yaml:1: is not valid YAML: .*expected", id="unclosed"),
        pytest.param("a: b: c\n", r"yaml:1: is not valid YAML", id="syntax"),
        pytest.param("a: *b\n", "found undefined alias", id="alias"),
        pytest.param("a: !!python/object/apply:os.getcwd []\n", "has a YAML tag", id="tag"),
        pytest.param("a: !!str 012\n", "has a YAML tag", id="known tag"),
        pytest.param('a: "\\UFFFFFFFF"\n', "is not valid YAML", id="no character"),
        pytest.param("[" * 1000, r"yaml:1: .*is nested more than 12 levels deep", id="deep"),
        pytest.param("a: [" + "b," * 60_000, "more than 25000 values", id="many"),
        pytest.param(
            "a: &a [*a]\n", "expands to more than 25000 values, or has a reference", id="endless"
        ),
        pytest.param(
            "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
            + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9)),
            "expands to more than 25000 values",
            id="billion laughs",
        ),
        pytest.param(b"a: b\nc: \xff\n", r"yaml:2: is not UTF-8", id="latin-1"),
        pytest.param(MINIMAL.encode("utf-16"), "is not UTF-8", id="utf-16"),
        pytest.param(
            b"a: b\nc: \0\n", r"yaml:2: contains a character that YAML does not", id="nul"
        ),
        pytest.param(MINIMAL + "#" * 256_000, "is larger than 256000 bytes", id="large"),
    ],
)
def test_a_file_that_is_not_a_monitor_is_refused(write, content, message):
    """Any content is refused quickly, with one sentence."""
    with pytest.raises(ConfigError, match=message):
        load_monitor(write(content))


@pytest.mark.parametrize("name", ["absent.yaml", "absent/a.yaml", ".", "a\0b", "x" * 300])
def test_a_file_that_cannot_be_read_is_refused(tmp_path, name):
    """A missing file, a folder and an impossible name are each reported."""
    with pytest.raises(ConfigError, match="cannot be read"):
        load_monitor(tmp_path / name)


# Secrets


@pytest.mark.parametrize(
    "text",
    [
        with_lines(model="tracking_uri: https://user:hunter2@mlflow.example.com"),
        with_lines(model="tracking_uri: https://hunter2@mlflow.example.com"),
        with_lines(model="tracking_uri: postgresql://:hunter2@db/mlflow"),
        with_lines(model="password: hunter2"),
        with_lines(model="tracking_uri_env: hunter2!"),
        MINIMAL.replace("windows/", "s3://id:hunter2@bucket/windows"),
        MINIMAL.replace("windows/", "abfs://container:hunter2@account/windows"),
        MINIMAL.replace("windows/", "https://x.example.com/a.csv?sv=1&sig=hunter2"),
        MINIMAL.replace("windows/", "https://x.example.com/a.csv?X-Amz-Signature=hunter2"),
        MINIMAL.replace("path: windows/", "table: a\n  url: postgresql://u:hunter2@db/a"),
        MINIMAL.replace("path: windows/", "table: a\n  url: postgresql://db/a?password=hunter2"),
        MINIMAL.replace("path: windows/", "table: a\n  url: host=db PASSWORD=hunter2"),
        MINIMAL.replace("path: windows/", "table: a\n  url: 'postgresql://u:hunter2@[db/a'"),
        with_lines(source="storage_options: {key: hunter2}"),
        with_lines(source="storage_options: {aws_secret_access_key: hunter2}"),
        with_lines(source="storage_options: {sessionToken: hunter2}"),
        with_lines(source="storage_options: {account_key: hunter2}"),
        with_lines(source="storage_options: {connection_string: AccountKey=hunter2}"),
        with_lines(source="storage_options: {endpoint_url: 'http://u:hunter2@store'}"),
        with_lines(source="storage_options: {key_env: hunter2!}"),
        with_lines(alert="webhook_url: https://u:hunter2@example.com"),
        with_lines(alert="webhook_url: https://example.com/?token=hunter2"),
        with_lines(alert="webhook_url: https://hooks.slack.com/services/T0/B0/hunter2"),
        with_lines(alert="email: {to: [a@b], password_env: hunter2!}"),
        with_lines(alert="email: {to: [a@b], password: hunter2}"),
    ],
)
def test_a_secret_is_refused_and_not_repeated(write, text):
    """No secret is accepted, and none gets into a log by way of the refusal."""
    file = write(text)

    with pytest.raises(ConfigError, match=r"environment variable|_env") as caught:
        load_monitor(file)

    for error in (caught.value, caught.value.__cause__, caught.value.__context__):
        assert "hunter2" not in str(error)


@pytest.mark.parametrize("name", ["endpoint_url", "region", "anon", "monkey", "use_ssl", "keyring"])
def test_a_harmless_option_is_let_be(write, name):
    """Only a whole word in a name makes it a secret."""
    text = with_lines(source=f"storage_options: {{{name}: abc}}")

    assert load_monitor(write(text)).source.storage_options == {name: "abc"}


def test_options_take_secrets_from_the_environment(write, monkeypatch):
    """An option that ends in _env gets its value from that variable; the others stay."""
    monkeypatch.setenv("STORE_SECRET", "hunter2")
    text = with_lines(source="storage_options: {secret_env: STORE_SECRET, retries: 3, anon: false}")

    options = resolve_options(load_monitor(write(text)).source.storage_options)

    assert options == {"secret": "hunter2", "retries": 3, "anon": False}


def test_an_unset_variable_is_named():
    """The reader learns which variable to set."""
    with pytest.raises(ConfigError, match="secret_env names the environment variable NOT_SET_X"):
        resolve_options({"secret_env": "NOT_SET_X"})


def test_an_option_is_given_once(write):
    """An option and its variable would contradict each other."""
    text = with_lines(source="storage_options: {region: a, region_env: B}")

    assert refusal(write(text)) == [
        (6, "source.storage_options: set either region or region_env, not both")
    ]


# Any content


PIECES = """model name source path timestamp on no 012 1e3 .nan null << &a *a !!int --- ... - :
alert: columns: storage_options: rectify: { } [ ] , ? & * ! | > ' " % @ ` # ~ \\""".split()
YAML_PIECES = st.sampled_from(
    [*PIECES, "\n", "\t", " ", "  ", ": ", "- ", "---\n", "\n  email: ", "\\ud800", "\0", "\ufeff"]
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["a:b@c", "s3://x:y@z", "1d", "2026-01-05", "auto", "none", "/", "a=b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=5,
)
PLACES = [
    tuple(place)
    for place in [
        *(["model", name] for name in monitor_schema()["$defs"]["ModelSettings"]["properties"]),
        *(["source", name] for name in monitor_schema()["$defs"]["SourceSettings"]["properties"]),
        *([name] for name in monitor_schema()["properties"]),
        *(["alert", name] for name in monitor_schema()["$defs"]["AlertSettings"]["properties"]),
        *(["rectify", name] for name in monitor_schema()["$defs"]["RectifySettings"]["properties"]),
        *(["baseline", name] for name in ("start", "end", "first", "")),
        *(["alert", "email", name] for name in ("to", "port", "tls", "x")),
    ]
]


def loads_or_refuses(file, content):
    """A monitor or our own error comes out, and nothing else."""
    file.write_bytes(content)
    try:
        outcome = load_monitor(file)
    except ConfigError as error:
        outcome = error
    assert isinstance(outcome, Monitor) or str(file) in str(outcome)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    """A file that is written again and again."""
    return tmp_path_factory.mktemp("fuzz") / "a.yaml"


@given(st.binary(max_size=200))
@settings(max_examples=150, deadline=None)
def test_any_bytes_are_answered(scratch, content):
    """Noise is refused."""
    loads_or_refuses(scratch, content)


@given(st.lists(YAML_PIECES | st.text(max_size=3), max_size=30))
@settings(max_examples=200, deadline=None)
def test_any_text_like_yaml_is_answered(scratch, pieces):
    """What looks like YAML is read or refused."""
    loads_or_refuses(scratch, "".join(pieces).encode(errors="surrogatepass"))


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_any_change_of_a_good_file_is_answered(scratch, data):
    """A few characters put in, changed or taken out of a good file."""
    text = FULL
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        gone = data.draw(st.integers(0, 6))
        text = text[:at] + data.draw(YAML_PIECES | st.text(max_size=2)) + text[at + gone :]

    loads_or_refuses(scratch, text.encode(errors="surrogatepass"))


@given(st.lists(st.tuples(st.sampled_from(PLACES), VALUES), min_size=1, max_size=4))
@settings(max_examples=200, deadline=None)
def test_any_value_at_any_place_is_answered(scratch, changes):
    """Values of every kind at every setting."""
    monitor = yaml.safe_load(FULL)
    for place, value in changes:
        section = monitor
        for part in place[:-1]:
            section = section.get(part) if isinstance(section, dict) else None
        if isinstance(section, dict):
            section[place[-1]] = value

    loads_or_refuses(scratch, yaml.safe_dump(monitor).encode())
