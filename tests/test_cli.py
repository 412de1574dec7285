"""The commands: what they print, what they end with, and what they load."""

import json
import re
import sqlite3
import subprocess
import sys

import pandas as pd
import pytest
from sklearn.svm import SVC

from benchmarks.deployments import EMPTY, MODEL, MOVED, NEW, QUIET, leaves
from rtscv_mlops.config.schema import schema_text
from tests.deployments import deployed, judged, judged_copy

HEAVY = ("mlflow", "sklearn", "pandas", "numpy", "evidently", "rich.progress", "scipy")


@pytest.fixture(scope="module")
def monitor():
    """The monitor file of a deployment of which each day was judged; not to be changed."""
    return judged().folder / "leaves.yaml"


# -- help


@pytest.mark.parametrize("words", [[], ["run"], ["review"], ["review", "approve"]])
def test_help_loads_nothing_heavy(words):
    """Whoever asks for help waits for no library."""
    program = (
        "import sys\nfrom rtscv_mlops.cli.commands import main\n"
        f"sys.argv = ['rtscv-mlops', *{words}, '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"found = [name for name in {HEAVY} if name in sys.modules]\n"
        "assert not found, found\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout


def test_a_wrong_command_line_is_a_2(command, monitor):
    """Unknown options are told apart from errors."""
    assert command("run", monitor, "--wndow", "2026-01-05")[0] == 2
    assert command("nothing")[0] == 2


# -- what is not there


@pytest.mark.parametrize(
    "words",
    [
        "check MONITOR",
        "review list MONITOR",
        "review show MONITOR",
        "review collect MONITOR",
        "review approve MONITOR --version 1",
        "rollback MONITOR --reason slow",
        "audit verify MONITOR",
        "run MONITOR --window 2026-01-05",
        "score MONITOR --window 2026-01-05",
        "bench --monitor MONITOR",
    ],
)
def test_an_mlflow_file_that_is_not_there_is_not_created(command, tmp_path, words):
    """A misspelt SQLite address of MLflow is said; no command but `register` creates the file."""
    monitor = tmp_path / "leaves.yaml"
    monitor.write_text(
        "name: leaves\n"
        "model: {name: leaves, tracking_uri: 'sqlite:///mlfow.db'}\n"
        "source: {path: served/, timestamp: at, key: id}\n"
        "labels: {path: labels.csv, key: id, label: kind}\n"
    )

    code, out, err = command(*words.replace("MONITOR", str(monitor)).split())

    assert code != 0
    # A long path is broken at the end of a line.
    said = joined(out + err).replace(" ", "")
    assert re.search(r"ThereisnoMLflowdatabaseat\S*mlfow.db;nothing", said)
    assert [path.name for path in tmp_path.iterdir()] == ["leaves.yaml"]


def joined(printed):
    """What was printed, without frames and the breaks of lines."""
    return " ".join(printed.replace("│", " ").split())


def test_a_source_that_is_not_there_is_not_created(command, tmp_path):
    """`check` says that an SQLite source has no file, and leaves the folder as it was."""
    folder = deployed(tmp_path / "leaves").folder
    monitor = folder / "leaves.yaml"
    lines = monitor.read_text().replace("path: ", "table: served\n  url: sqlite:///serverd.db\n  #")
    monitor.write_text(lines)
    before = sorted(path.name for path in folder.iterdir())

    code, out, err = command("check", monitor)

    assert code == 1
    assert "There is no SQLite file" in joined(out + err)
    assert sorted(path.name for path in folder.iterdir()) == before


# -- run


@pytest.mark.parametrize(
    ("day", "code", "words"),
    [
        (QUIET, 0, "no_change"),
        (MOVED, 10, "drift"),
        (NEW, 11, "unknowns"),
        (EMPTY, 20, "NOT ASSESSED (empty_window)"),
    ],
)
def test_run_ends_with_the_verdict(command, monitor, day, code, words):
    """The exit code, the words and the JSON say the same, and JSON is all that is printed."""
    ended, out, _ = command("run", monitor, "--window", day)
    as_json = command("run", monitor, "--window", day, "--json")

    assert ended == as_json[0] == code
    assert words in out
    facts = json.loads(as_json[1])
    assert facts["headline"].split()[0] in out
    assert facts["run_id"] in out
    assert (facts["version"] is not None) == (day == NEW)


def fit_aloud(X, y):
    """Fit a model, and print meanwhile, as LightGBM and skorch do."""
    sys.stdout.write("Iteration 1\n")
    return SVC().fit(X, y)


def test_a_talkative_model_does_not_spoil_the_json(command, tmp_path):
    """What a model prints while it is fitted goes to standard error; the result stays JSON."""
    file = deployed(tmp_path).write_monitor(more="  fit: tests.test_cli:fit_aloud\n")

    _, out, err = command("run", file, "--window", QUIET, "--json")

    assert json.loads(out)["verdict"] == "no_change"
    assert "Iteration 1" in err


def test_run_tells_where_to_go_on(command, monitor):
    """The report's place and the next command stand on lines of their own, unbroken."""
    _, out, _ = command("run", monitor, "--window", NEW)

    lines = [line.strip() for line in out.splitlines()]
    report = next(line for line in lines if line.startswith("report"))
    assert pd.io.common.file_exists(report.split()[1])
    assert f"next  rtscv-mlops review show {monitor} --version 2" in lines


def test_run_sends_nobody_to_review_what_is_blocked(command, tmp_path):
    """What is shown to be typed says why a version is blocked, and asks for no decision."""
    file = deployed(tmp_path).write_monitor(more="review: {min_unknowns: 200}\n")

    _, out, _ = command("run", file, "--window", NEW)
    _, shown, _ = command("review", "show", file, "--version", "2")
    _, _, waiting = command("review", "show", file)

    lines = [line.strip() for line in out.splitlines()]
    assert f"why  rtscv-mlops review show {file} --version 2" in lines
    assert not [line for line in lines if line.startswith("next")]
    assert "Blocked, cannot be approved." in shown
    assert "review approve" not in shown
    assert "its challengers are: 2 (blocked). To see one of them" in " ".join(waiting.split())


def test_run_by_start_and_end_is_the_same_window(command, monitor):
    """A day is the time between two midnights."""
    bounds = ("--start", "2026-01-05T00:00:00+00:00", "--end", "2026-01-06T00:00:00+00:00")

    by_bounds = json.loads(command("run", monitor, *bounds, "--json")[1])
    by_day = json.loads(command("run", monitor, "--window", QUIET, "--json")[1])

    assert by_bounds["run_id"] == by_day["run_id"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "Name the window"),
        (["--window", QUIET, "--start", QUIET], "Name the window"),
        (["--window", "yesterday"], "'yesterday' is not a valid day"),
        (["--start", QUIET, "--end", "soon"], "'soon' is not a valid time"),
    ],
)
def test_a_window_that_cannot_be_understood(command, monitor, words, sentence):
    """It is a sentence on standard error, and the exit code of a wrong command line."""
    code, out, err = command("run", monitor, *words)

    assert (code, out) == (2, "")
    assert sentence in err
    assert "Traceback" not in err


# -- setting up


def test_init_writes_what_check_accepts(command, tmp_path):
    """The file names the model's columns, and once its source is right nothing is amiss."""
    deployment = deployed(tmp_path)
    file = tmp_path / "fresh.yaml"

    code, out, _ = command("init", MODEL, "--file", file, "--tracking-uri", deployment.uri)

    assert code == 0
    assert f"rtscv-mlops check {file}" in out.replace("\n", "")
    text = file.read_text()
    assert "length" in text
    assert (tmp_path / "monitor.schema.json").read_text() == schema_text()
    file.write_text(text.replace("timestamp: served_at", "timestamp: seen_at"))
    code, out, _ = command("check", file)
    assert code == 0, out
    assert "✘" not in out
    assert command("init", MODEL, "--file", file, "--tracking-uri", deployment.uri)[0] == 1


def test_check_names_each_problem(command, tmp_path):
    """A champion that is not there and a source without files are two problems, told at once."""
    deployment = deployed(tmp_path)
    file = deployment.write_monitor("broken", model="nobody")
    file.write_text(file.read_text().replace("windows/", "nowhere/"))

    code, out, _ = command("check", file)
    as_json = command("check", file, "--json")

    assert code == as_json[0] == 1
    found = {one["what"]: one for one in json.loads(as_json[1])}
    assert found["champion"]["state"] == found["source"]["state"] == "problem"
    assert "nobody" in found["champion"]["found"]
    assert "nowhere" in found["source"]["found"]
    assert out.count("✘") == 2


def test_check_of_a_sound_monitor(command, monitor):
    """It tells version, columns, training rows and the span of the source."""
    code, out, _ = command("check", monitor)

    assert code == 0
    for words in ("version 1, SVC", "240 rows", "3 classes", "670 rows"):
        assert words in out.replace("\n", " "), words


def test_check_of_a_file_with_mistakes(command, tmp_path):
    """All mistakes are listed with their lines."""
    file = tmp_path / "wrong.yaml"
    file.write_text("model: {name: leaves}\nsource: {path: windows/}\nrectify: {alpha: 2}\n")

    code, _, err = command("check", file)

    assert code == 1
    assert "wrong.yaml:2" in err.replace("\n", "")
    assert "wrong.yaml:3" in err.replace("\n", "")


def make_model():
    """A factory for `register`."""
    from sklearn.svm import SVC

    return SVC(random_state=0)


def test_register_makes_a_champion(command, tmp_path, monkeypatch):
    """A table, a label and a factory are enough; a second champion needs a clear word."""
    deployment = deployed(tmp_path)
    monkeypatch.chdir(tmp_path)  # MLflow makes its folder of artifacts here
    rows, kinds = leaves(0, {"oak": 30, "elm": 30})
    rows.assign(kind=kinds).to_csv(tmp_path / "training.csv", index=False)
    words = ("register", "trees", "--training", tmp_path / "training.csv", "--label", "kind")
    words = (*words, "--estimator", "tests.test_cli:make_model", "--tracking-uri", deployment.uri)

    code, out, err = command(*words)

    assert code == 0, err
    assert "Version 1 of trees is the champion" in out
    code, _, err = command(*words)
    assert code == 1
    assert "alias 'champion' already" in err.replace("\n", " ")
    assert deployment.client.get_registered_model("trees").aliases == {"champion": 1}


def test_register_keeps_a_class_called_na(command, tmp_path, monkeypatch):
    """A label `NA` in a CSV file is a class, not a missing label."""
    deployment = deployed(tmp_path)
    monkeypatch.chdir(tmp_path)
    rows, kinds = leaves(0, {"oak": 30, "elm": 30})
    labels = ["NA" if kind == "elm" else kind for kind in kinds]
    rows.assign(kind=labels).to_csv(tmp_path / "training.csv", index=False)
    options = ("--training", tmp_path / "training.csv", "--label", "kind")
    options = (*options, "--estimator", "tests.test_cli:make_model")

    code, _, err = command("register", "trees", *options, "--tracking-uri", deployment.uri)

    assert code == 0, err
    run_id = deployment.client.get_model_version_by_alias("trees", "champion").run_id
    training = deployment.client.download_artifacts(run_id, "training", str(tmp_path))
    assert set(pd.read_parquet(training)["kind"]) == {"NA", "oak"}


# -- review


@pytest.mark.parametrize(
    ("said", "ended", "champion"),
    [("approved", "is the champion now.", "2"), ("rejected", "is rejected", "1")],
)
def test_an_answer_in_mlflow_is_carried_out(command, tmp_path, said, ended, champion):
    """Without Airflow a tag waits for `collect`, which list and show name, and happens once."""
    deployment = judged_copy(tmp_path)
    file = tmp_path / "leaves.yaml"
    for name, text in {"reviewer": "mara", "reason": "figs", "review": said}.items():
        deployment.client.set_model_version_tag(MODEL, "2", f"rtscv.{name}", text)

    told = [" ".join(command("review", verb, file)[1].split()) for verb in ("list", "show")]
    code, out, _ = command("review", "collect", file)
    again = command("review", "collect", file)

    for words in told:
        assert f"Version 2 was {said} in MLflow by mara" in words
        assert f"rtscv-mlops review collect {file}" in words
    assert code == 0
    assert f"Version 2 {ended}" in out
    assert "Answered by mara." in out
    assert deployment.aliases()["champion"] == champion
    assert again[:2] == (0, "There is no answer in MLflow.\n")


@pytest.mark.parametrize("verb", ["list", "show", "collect"])
def test_a_misspelt_answer_in_mlflow_is_told(command, tmp_path, verb):
    """Who writes another word than ours hears of it from every command that reads the tag."""
    deployment = judged_copy(tmp_path)
    deployment.client.set_model_version_tag(MODEL, "2", "rtscv.review", "aproved")

    code, out, _ = command("review", verb, tmp_path / "leaves.yaml")

    assert code == 0
    assert (
        "The tag rtscv.review of version 2 says 'aproved', which is neither approved nor rejected; "
        "nothing was done."
    ) in " ".join(out.split())
    assert deployment.aliases()["champion"] == "1"


def test_review_from_question_to_rollback(command, tmp_path):
    """A person lists, reads, approves and takes back; each step says what it did."""
    deployment = judged_copy(tmp_path)
    file = tmp_path / "leaves.yaml"

    listed = json.loads(command("review", "list", file, "--json")[1])
    shown = command("review", "show", file)
    yes = ("--version", "2", "--reviewer", "ada", "--reason", "figs, indeed")
    approved = command("review", "approve", file, *yes)
    champion = deployment.aliases()["champion"]
    no = ("--version", "2", "--reviewer", "bob")
    unreasoned = command("review", "reject", file, *no)
    again = command("review", "reject", file, *no, "--reason", "known leaves")
    back = command("rollback", file, "--reviewer", "ada", "--reason", "too early")
    champion_before = deployment.aliases()["champion"]
    audit = command("audit", "verify", file)
    kinds = [
        one["kind"] for one in json.loads(command("audit", "verify", file, "--json")[1])["records"]
    ]
    undone = command("rollback", file, "--undo", "--reviewer", "ada", "--reason", "a mistake")

    assert [(one["version"], one["review"]) for one in listed] == [("2", "pending")]
    assert shown[0] == 0
    assert "may this model replace version 1 of leaves?" in shown[1]
    # The terminal breaks long paths into lines.
    words = "".join(shown[1].split())
    assert f"reviewapprove{file}--version2" in words
    report = deployment.window_run(NEW).address("report.html").removeprefix("file://")
    assert f"Report:{report}" in words
    assert (approved[0], champion) == (0, "2")
    assert "Version 2 is the champion now" in approved[1]
    assert unreasoned[0] == again[0] == 1
    assert "A decision needs a reason" in unreasoned[2]
    assert "approved by ada" in again[2].replace("\n", " ")
    assert (back[0], champion_before) == (0, "1")
    assert re.search(
        r"restored \(was 2\) +│ +1 +│", audit[1]
    )  # The one that serves again, not the one taken back.
    assert kinds == ["approved", "promoted", "not_carried_out", "rolled_back"]
    assert (undone[0], deployment.aliases()["champion"]) == (0, "2")
    assert "Version 2 is the champion again." in undone[1]
    assert command("review", "show", file)[0] == 1


def test_the_audit_finds_an_edit(command, tmp_path):
    """Every decision is listed; one changed letter is found, named, and ends with exit code 1."""
    judged_copy(tmp_path)
    file = tmp_path / "leaves.yaml"
    yes = ("--version", "2", "--reviewer", "ada", "--reason", "figs, indeed")
    nothing = command("audit", "verify", file)
    command("review", "approve", file, *yes)

    clean = command("audit", "verify", file)
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        database.execute(
            "UPDATE params SET value = replace(value, 'ada', 'eve') WHERE key LIKE 'record.%1'"
        )
    edited = command("audit", "verify", file, "--json")

    assert "none of them moved the champion, so they do" in " ".join(nothing[1].split())
    assert clean[0] == 0
    assert "figs, indeed" in clean[1]
    assert "2 records, none was changed; the champion is the one they name" in clean[1]
    assert edited[0] == 1
    told = json.loads(edited[1])
    assert [one["kind"] for one in told["records"]] == ["approved", "promoted"]
    assert told["problems"][0] == "Record 1 was changed after record 2 sealed it."


def test_a_challenger_can_be_rejected(command, tmp_path):
    """A no is an answer, not a failure: the champion stays, and nothing waits any more."""
    deployment = judged_copy(tmp_path)
    file = tmp_path / "leaves.yaml"

    no = ("--version", "2", "--reviewer", "ada", "--reason", "not figs")
    code, out, _ = command("review", "reject", file, *no)

    assert code == 0
    assert "Version 2 is rejected; the champion stays" in out
    assert deployment.aliases() == {"champion": "1"}
    (version,) = deployment.versions(NEW)
    assert (version.review, version.reason) == ("rejected", "not figs")
    assert "No challenger waits" in command("review", "show", file)[2].replace("\n", " ")


def test_a_decision_names_what_was_seen(command, tmp_path):
    """Without a version nobody can be sure to decide on what they looked at."""
    code, _, told = command("review", "approve", str(tmp_path / "any.yaml"))

    assert code == 2
    assert "--version" in told


def test_purge_tells_what_it_removed(command, tmp_path):
    """Each window is listed with what is gone."""
    judged_copy(tmp_path)

    code, out, _ = command("purge", tmp_path / "leaves.yaml", "--before", "2026-01-08", "--json")

    assert code == 0
    removed = {one["window"]: one["removed"] for one in json.loads(out)}
    assert len(removed) == 4
    assert sum("unknowns.parquet" in names for names in removed.values()) == 1


def test_score_prints_true_figures(command, tmp_path):
    """The share of labelled rows and each figure are told, also as JSON."""
    judged_copy(tmp_path)
    table = pd.read_parquet(tmp_path / "windows" / f"day={NEW}")
    table[["leaf", "kind"]].to_parquet(tmp_path / "labels.parquet")
    file = tmp_path / "leaves.yaml"
    labels = "labels:\n  path: labels.parquet\n  key: leaf\n  label: kind\n"
    file.write_text(file.read_text() + labels)

    _, out, _ = command("score", file, "--window", NEW)
    code, as_json, _ = command("score", file, "--window", NEW, "--json")

    assert code == 0
    assert "250 of 250 rows have a label" in out
    assert json.loads(as_json)["unknown_rate"] == pytest.approx(0.16)


def test_score_says_which_verdict_was_scored(command, tmp_path):
    """A monitor whose present settings judged nothing scores the latest verdict, and says so."""
    judged_copy(tmp_path)
    file = tmp_path / "leaves.yaml"
    file.write_text(file.read_text().replace("  key: leaf\n", "  key: leaf\n  label: kind\n"))

    _, out, _ = command("score", file, "--window", NEW)

    assert "was not judged with the monitor's present settings" in " ".join(out.split())
