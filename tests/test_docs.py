"""The documents are checked against the code: what they show runs, what there is, they name."""

import os
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from inspect import Parameter, signature
from pathlib import Path

import mlflow
import pandas as pd
import pytest
import typer
import yaml

from rtscv_mlops import RTSCVClassifier, demo
from rtscv_mlops.airflow.dags import CONTAINER
from rtscv_mlops.cli.commands import app
from rtscv_mlops.config.loading import load_monitor
from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.estimator.clusters import Cluster
from rtscv_mlops.estimator.statistics import Assessment
from rtscv_mlops.models.load import load_champion
from rtscv_mlops.outcomes import Verdict
from rtscv_mlops.tracking.client import connect
from tests.test_architecture import LAYERS
from tools import docs

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
AIRFLOW = (ROOT / "docs" / "airflow.md").read_text()
KUBERNETES = (ROOT / "docs" / "kubernetes.md").read_text()
OVERVIEW = (ROOT / "docs" / "overview.md").read_text()
BENCH = (ROOT / "docs" / "bench.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
ESTIMATOR = (ROOT / "docs" / "estimator.md").read_text()
VERDICT = (ROOT / "docs" / "verdict.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS = typer.main.get_command(app).commands.values()
TARGETS = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)


def run_blocks(page):
    """Run each block of Python of a page, one after the other; return the names they left."""
    names = {}
    for block in re.findall(r"^```python\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL):
        exec(compile(block, "page", "exec"), names)
    return names


def test_the_estimator_code_runs(capsys):
    """The code of the estimator's page runs as it stands, and finds the hidden digit."""
    names = run_blocks(ESTIMATOR)

    assert names["model"].assessment_.verdict == "unknowns"
    assert names["model"].unknown_label_ == 10
    truth = names["y"][names["window"]][names["model"].unknown_indices_]
    assert (truth == 6).mean() > 0.8
    assert capsys.readouterr().out.startswith("About ")


def test_the_readme_code_runs(tmp_path, monkeypatch):
    """The README's champion can be logged as it stands, and a monitor of five lines accepts it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    mlflow.set_tracking_uri(None)

    names = run_blocks(README)

    (monitor,) = re.findall(r"^```yaml\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
    (tmp_path / "wine.yaml").write_text(monitor)
    settings = load_monitor(tmp_path / "wine.yaml")
    champion = load_champion(connect(settings.model), settings.model)
    assert len(monitor.splitlines()) == 5
    assert champion.version == names["version"]
    assert champion.column_names == list(names["X"].columns)


def test_the_readme_commands_run(tmp_path, monkeypatch):
    """Its commands, as they stand, lead from a template to a promoted version and back."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    mlflow.set_tracking_uri(None)
    served = run_blocks(README)["X"].sample(178, random_state=0, ignore_index=True)
    served.iloc[:40] *= 1.5  # a cultivar that nobody has grown before
    served["served_at"] = pd.Timestamp("2026-01-05T12:00:00Z")
    served.to_parquet(tmp_path / "served.parquet", index=False)
    (monitor,) = re.findall(r"^```yaml\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
    (tmp_path / "wine.yaml").write_text(monitor.replace("s3://bucket/served/", "served.parquet"))

    (template,) = re.findall(r"`(rtscv-mlops init [^`]*)` writes", README)
    assert run_command(f"{template} --file template.yaml", tmp_path) == 0
    assert load_monitor(tmp_path / "template.yaml").model.name == "wine"
    commands = re.findall(r"^\$ (rtscv-mlops .*wine\.yaml.*)$", README, flags=re.MULTILINE)
    ends = [run_command(command, tmp_path) for command in commands]

    assert [command.split()[1] for command in commands] == [
        *("check", "run", "review", "review", "rollback")
    ]
    assert ends == [0, Verdict.UNKNOWNS.traits.exit_code, 0, 0, 0]


def run_command(line, folder):
    """Run a line of a console block; return its exit code."""
    words = shlex.split(line, comments=True)
    program = Path(sys.executable).with_name(words[0])
    return subprocess.run([program, *words[1:]], cwd=folder, stdin=subprocess.DEVNULL).returncode


@pytest.mark.slow
def test_the_bench_page_shows_what_bench_prints(tmp_path):
    """The page shows what its command prints, except for seconds."""
    demo.prepare(tmp_path / "demo", [next(demo.make_days())])
    ((command, shown),) = re.findall(
        r"^```text\n\$ (rtscv-mlops bench [^\n]*)\n(.*?)^```",
        BENCH,
        flags=re.MULTILINE | re.DOTALL,
    )
    words = [Path(sys.executable).with_name("rtscv-mlops"), *shlex.split(command)[1:]]

    done = subprocess.run(
        words, cwd=tmp_path, env={**os.environ, "COLUMNS": "100"}, capture_output=True, text=True
    )

    assert without_seconds(done.stdout) == without_seconds(shown)


def without_seconds(table):
    """Return the lines of a table without its last column, and without what only lays it out."""
    return [
        re.sub(r"\s+[\d.]+$", "", line.rstrip()).strip("─ ") for line in table.strip().splitlines()
    ]


def test_the_page_of_commands_is_theirs():
    """Every command's own help is what docs/cli.md says; `make docs` writes it."""
    assert (ROOT / "docs" / "cli.md").read_text() == docs.commands()


@pytest.mark.parametrize("name", [command.name for command in COMMANDS])
def test_every_command_is_named(name):
    """A command that nobody can find does not exist."""
    assert f"| `rtscv-mlops {name}` |" in OVERVIEW


def test_the_estimator_page_quotes_the_measured_macro_f():
    """What the page says of the paper's Table 1 is what the benchmark has written."""
    (quoted,) = re.findall(r"^\| Macro F .*$", ESTIMATOR, flags=re.MULTILINE)
    table = re.findall(r"^\| \w+ [\d.]+ % \| (.*?) \|.*\*\*([\d.]+) ±", VERDICT, flags=re.MULTILINE)
    decimals = r"(\d+\.\d(?: / \d+\.\d)*)"
    quotes = re.findall(rf"{decimals} \({decimals}\)", quoted)

    assert " / ".join(own for own, _ in quotes) == " / ".join(own for _, own in table)
    assert " / ".join(published for _, published in quotes) == " / ".join(
        published.partition(" / ")[2] for published, _ in table
    )


def verdict_rows(number):
    """Return the rows of a section's table in docs/verdict.md, without its head, as cells."""
    section = re.search(rf"^## {number}\. .*?(?=^## |\Z)", VERDICT, re.MULTILINE | re.DOTALL)[0]
    return [line.strip("| ").split(" | ") for line in re.findall(r"^\| .*\|$", section, re.M)[1:]]


def test_the_estimator_page_quotes_the_measured_verdicts():
    """False alarms, power, verdicts and coverage are those that the benchmark has written."""
    alarms = [(change, 100 * float(at)) for _, change, _, _, _, at, *_ in verdict_rows(2)]
    nothing = [rate for change, rate in alarms if change == "nothing"]
    shares = [rate for change, rate in alarms if change == "label shift"]
    (writers,) = [rate for change, rate in alarms if change == "new writers with baseline"]
    found = {
        data: 100 * float(cells[2].split()[0])
        for data, window, *cells in verdict_rows(3)
        if window == "2000"
    }
    drift = [row for row in verdict_rows(5) if row[1] == "drift"]
    windows = sum(int(count) for row in drift for count in row[2:6])
    right = {row[0]: 100 * float(row[6]) for row in verdict_rows(5)}
    share, of = re.search(r"^Right in ([\d.]+) % of (\d+) windows", VERDICT, re.M).groups()
    covers = [100 * float(row[6]) for row in verdict_rows(4)]

    for quote in (
        f"| {min(nothing):g} to {max(nothing):g} % of 200, by data set and gate; "
        f"other class shares at most {max(shares):g} %; "
        f"new writers with a baseline {writers:g} % |",
        f"; Letter {found['letter']:.0f} % of 40,",
        f"| {float(share):.0f} % of {of}; of the {windows} with drift alone, none was",
        f"({right['drift + new class 20 %']:.0f} % where drift is synthetic, all where",
        f"| {min(covers):.0f} to {max(covers):g} % of the windows, by data set |",
    ):
        assert quote in ESTIMATOR
    assert found["pendigits"] == found["mnist50"] == right["new writers + new class 20 %"] == 100
    assert all(int(row[4]) == 0 for row in drift)


def test_the_overview_quotes_the_measured_cost():
    """What the overview says of large windows is what the benchmark has written."""
    cost = (ROOT / "docs" / "cost.md").read_text()
    quoted = re.search(
        r"ten million rows peaks at (\d+) MB, one of a million at (\d+), and\s"
        r"takes ([\d.]+) CPU seconds more",
        OVERVIEW,
    ).groups()

    def measured(what):
        return [
            re.search(rf"^\| {what} {rows} rows(?:, MB)? \| ([\d.]+) \|", cost, re.MULTILINE)[1]
            for rows in ("10,000,000", "1,000,000")
        ]

    most, least = map(float, measured("CPU s of a run on"))
    assert quoted == (*measured("peak memory of"), f"{most - least:.1f}")


def test_every_exit_code_is_named():
    """The table of verdicts has the exit codes of `run`."""
    for verdict, code in ((each, each.traits.exit_code) for each in Verdict):
        assert re.search(rf"^\| `{verdict}\b.* \| {code} \|$", OVERVIEW, flags=re.MULTILINE)


@pytest.mark.parametrize("part", [name for name in Monitor.model_fields if name != "name"])
def test_every_part_of_a_monitor_is_named(part):
    """The table of the monitor's parts is whole."""
    assert re.search(rf"^\|.*`{part}`.*\| ", OVERVIEW, flags=re.MULTILINE)


@pytest.mark.parametrize("parameter", signature(RTSCVClassifier).parameters.values(), ids=str)
def test_every_parameter_is_in_the_table(parameter):
    """The table of parameters has each of them, with its default."""
    default = "" if parameter.default is Parameter.empty else f"`{parameter.default!r}` "

    assert f"| `{parameter.name}` | {default}|" in ESTIMATOR


@pytest.mark.parametrize(
    "word",
    [
        *(each for each in Verdict if each.is_assessed),
        *(field.name for field in fields(Assessment)),
    ],
)
def test_every_fact_is_explained(word):
    """Each verdict and each field of the assessment begins a row of a table."""
    assert f"\n| `{word}` | " in ESTIMATOR


@pytest.mark.parametrize("name", [field.name for field in fields(Cluster)])
def test_candidate_classes_are_explained(name):
    """What a candidate class holds is named."""
    assert f"`{name}`" in ESTIMATOR


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_is_named(target):
    """A target that nobody can find does not exist."""
    assert f"`make {target}`" in CONTRIBUTING


def test_the_architecture_page_has_the_layers():
    """The table of layers lists the same modules, in the same order, as the test of imports."""
    section = re.search(r"^## Layers$.*?(?=^## )", ARCHITECTURE, re.MULTILINE | re.DOTALL)[0]
    rows = re.findall(r"^\| [^|`]* \| (`.*) \|$", section, flags=re.MULTILINE)

    assert [set(re.findall(r"`(\w+)`", row)) for row in rows] == LAYERS


def test_every_named_target_exists():
    """Every target that README and CONTRIBUTING name exists."""
    assert set(re.findall(r"(?:`|\$ )make ([a-z-]+)", README + CONTRIBUTING)) <= set(TARGETS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    """Pictures and pages that a page points at are part of the repository."""
    targets = re.findall(r"\]\((?!http)([^)#]+)", page.read_text())

    assert all((page.parent / target).exists() for target in targets)


def test_the_site_can_be_searched_as_plain_files(tmp_path, browser):
    """Opened from a folder, without a server, it finds words and asks nobody else."""
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=True,
    )
    page = browser.new_page()
    asked = []
    page.on("request", lambda request: asked.append(request.url))

    page.goto((tmp_path / "index.html").as_uri())
    page.locator(".md-search__input").click()
    page.keyboard.type("cooldown")

    page.locator(".md-search-result__item").first.wait_for()
    assert all(address.startswith(("file:", "about:")) for address in asked)
    page.close()


def test_the_airflow_page_can_be_copied(tmp_path):
    """Its settings make a monitor, and its DAG is one that Airflow takes."""
    (settings,) = re.findall(r"^```yaml\n(.*?)^```", AIRFLOW, flags=re.MULTILINE | re.DOTALL)
    (tmp_path / "wine.yaml").write_text(
        f"model:\n  name: wine\nsource:\n  path: served/\n  timestamp: at\n{settings}"
    )

    assert load_monitor(tmp_path / "wine.yaml").airflow.reviewers == ("ann", "ben")
    assert run_blocks(AIRFLOW)["deploy"].__name__ == "deploy"


def test_the_kubernetes_page_can_be_copied(tmp_path):
    """Its settings make monitors, and its pod has the container that a monitor's figures go to."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", KUBERNETES, flags=re.MULTILINE | re.DOTALL)
    (template,) = [block for block in blocks if not block.startswith("airflow:")]
    for settings in set(blocks) - {template}:
        (tmp_path / "wine.yaml").write_text(
            f"model:\n  name: wine\nsource:\n  path: served/\n  timestamp: at\n{settings}"
        )
        airflow = load_monitor(tmp_path / "wine.yaml").airflow
        assert airflow.queue or airflow.executor or airflow.resources

    (container,) = yaml.safe_load(template)["spec"]["containers"]
    assert container["name"] == CONTAINER


def test_the_readme_is_short():
    """The README fits into five minutes; the rest is on the site."""
    assert len(README.split()) <= 700
