"""Rows 101 to 114: services and settings."""

import time
from pathlib import Path
from typing import Any

import pytest
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INTERNAL_ERROR
from mlflow.tracking import MlflowClient
from sklearn.naive_bayes import GaussianNB

from rtscv_mlops.config.loading import load_monitor, read_monitors
from rtscv_mlops.errors import ConfigError, ReviewError, ServiceError
from rtscv_mlops.models.load import load_champion
from rtscv_mlops.models.register import log_champion
from rtscv_mlops.pipeline.run import run_window
from rtscv_mlops.report import page
from rtscv_mlops.review.answers import promote_challenger, review_challenger
from rtscv_mlops.tracking.client import make_experiment
from rtscv_mlops.tracking.ledger import experiment_name
from rtscv_mlops.tracking.registry import ModelRegistry
from rtscv_mlops.tracking.runs import WindowRun
from tests.catalogue.bench import DAY, Bench, Part, assert_says, error_of, traffic
from tests.catalogue.part_b import answering
from tests.catalogue.part_e import numbers
from tests.monitors import with_lines, write_monitor
from tests.registries import KEY, add_champion, log_model, seal_window

PART = Part()

# -- MLflow


def mlflow_fails(bench: Bench, address: str, code: str, says: str) -> None:
    """Run a window whose MLflow fails: nobody can record that, so it is raised; no secret is told.

    MLflow's own client asks again for some four minutes, here once only.
    """
    bench.patch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    bench.patch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    bench.patch.setenv("MLFLOW_TRACKING_TOKEN", "canary-token")
    bench.put(traffic())
    with pytest.raises(ServiceError) as failure:
        run_window(bench.monitor(model={"tracking_uri": address}), DAY)
    assert failure.value.code == code
    assert_says(says, str(failure.value))
    assert "canary" not in str(failure.value)


@PART.row(101, "mlflow-unreachable")
def mlflow_unreachable(bench):
    mlflow_fails(bench, "http://127.0.0.1:1", "mlflow", "MLflow could not look for the model")


@PART.row(101, "mlflow-500")
def mlflow_500(bench):
    with answering(500) as address:
        mlflow_fails(bench, address, "mlflow", "MLflow could not look for the model.*500")


@PART.row(101, "mlflow-slow")
def mlflow_slow(bench):
    with answering(200, "{}", after=2) as address:
        mlflow_fails(bench, address, "mlflow", "MLflow could not look for the model.*timed? ?out")


for status, code in ((401, "UNAUTHENTICATED"), (403, "PERMISSION_DENIED")):

    @PART.row(102, f"mlflow-{status}")
    def mlflow_refuses(bench, status=status, code=code):
        with answering(status, f'{{"error_code": "{code}", "message": "no"}}') as address:
            says = "MLflow refused to .* MLFLOW_TRACKING_USERNAME or MLFLOW_TRACKING_TOKEN"
            mlflow_fails(bench, address, "mlflow_refused", says)


@PART.row(102, "mlflow-401-without-words")
def mlflow_401_without_words(bench):
    # What a proxy before MLflow, or MLflow's own login, answers.
    with answering(401, "Unauthorized") as address:
        says = "MLflow refused to .* MLFLOW_TRACKING_USERNAME or MLFLOW_TRACKING_TOKEN"
        mlflow_fails(bench, address, "mlflow_refused", says)


@PART.row(103, "tls-error")
def tls_error(bench):
    with answering(200) as address:
        https = address.replace("http:", "https:")
        mlflow_fails(bench, https, "mlflow", "MLflow could not .*SSL")


@PART.row(103, "login-page")
def login_page(bench):
    with answering(200, "<html><body>Please log in</body></html>") as address:
        says = "answered with a page.* where JSON was expected.* login"
        mlflow_fails(bench, address, "mlflow", says)


@PART.row(104, "artifact-store-refuses")
def artifact_store_refuses(bench):
    store = bench.artifacts / "store"
    name = experiment_name(bench.name)
    make_experiment(bench.client, name, store.as_uri())
    bench.log_champion(GaussianNB(), *numbers())
    bench.put(traffic())
    store.write_text("no folder, so nothing can be written into it")

    with error_of(ServiceError, "storage", "artifact store could not write .* space and"):
        run_window(bench.monitor(), DAY)

    (recorded,) = bench.outcomes(DAY)
    assert recorded.state == "failed:storage"
    assert bench.client.get_run(recorded.run_id).info.status == "FAILED"


class LosesAnswers(MlflowClient):
    """A client whose server creates a version, and whose answer is lost on the way back."""

    lost = False

    def create_model_version(self, *given: Any, **named: Any) -> Any:
        created = super().create_model_version(*given, **named)
        if not self.lost:
            self.lost = True
            raise MlflowException("502 after commit", INTERNAL_ERROR)
        return created


@PART.row(105, "5xx-after-commit")
def failure_after_commit(bench):
    add_champion(bench.client, bench.name)
    uri = bench.client.tracking_uri
    lossy = LosesAnswers(uri, uri)
    registry = ModelRegistry(lossy, bench.name)
    run = registry.runs.open(KEY)
    model_id = log_model(lossy, run.run_id)
    seal = seal_window(lossy, KEY, run.run_id, model_id, day=5, model=bench.name)

    version = registry.versions.register(seal)

    assert lossy.lost
    assert [one.version for one in ModelRegistry(bench.client, bench.name).versions.all()] == [
        version
    ]
    assert len(bench.client.search_model_versions(f"name = '{bench.name}'")) == 2


@PART.row(106, "too-long-and-too-many")
def too_long_and_too_many(bench):
    run = ModelRegistry(bench.client, bench.model).runs.open(bench.name)
    run.set_tags({"words": "w" * 9_000})
    run.log_params({"setting": "s" * 9_000, "a strange: name": 1})
    run.log_metrics({f"number_{place}": place for place in range(1_500)})

    found = bench.client.get_run(run.run_id).data
    assert len(found.tags["words"]) <= 5_000
    assert len(found.params["setting"]) <= 6_000
    assert len(found.metrics) == 1_500
    for name, text in (("words", "w" * 9_000), ("setting", "s" * 9_000)):
        assert run.download(f"long/{name}.txt", bench.folder).read_text() == text


# -- settings


def refused_settings(number: int, name: str, text: str, says: str) -> None:
    """Add a row whose monitor file is refused."""

    def act(bench: Bench) -> None:
        file = write_monitor(bench.folder, text)
        with error_of(ConfigError, "bad_config", rf"digits\.yaml cannot be used:.*{says}"):
            load_monitor(file)

    PART.row(number, name)(act)


SETTINGS = {
    (107, "unknown-key"): ("alhpa: 0.1", r":7: rectify\.alhpa: .*alpha"),
    (107, "wrong-type"): ("seed: often", r":7: rectify\.seed: .*(whole number|integer)"),
    (107, "key-twice"): (
        "seed: 1\nseed: 2",
        r":7: rectify\.seed: is given twice, on lines 7 and 8",
    ),
    (107, "no-as-a-label"): ("unknown_label: no", r":7: rectify\.unknown_label: no is text in one"),
    (109, "alpha-0"): ("alpha: 0", r":7: rectify\.alpha: .*(greater|above|more).* 0"),
    (109, "alpha-above-1"): ("alpha: 1.5", r":7: rectify\.alpha: .*(less|below).* 1"),
    (109, "one-fold"): ("cv: 1", r":7: rectify\.cv: .*2"),
    (109, "cap-below-least"): (
        "max_rows: 60\n  min_rows: 90",
        r":7: rectify: max_rows 60 is below min_rows 90, so no window could be assessed",
    ),
    (109, "least-below-folds"): ("cv: 9\n  min_rows: 5", r":\d: rectify.*5 is below the 9 folds"),
}
for (number, name), (lines, says) in SETTINGS.items():
    refused_settings(number, name, with_lines(rectify=lines.replace("\n  ", "\n")), says)
refused_settings(107, "tab", with_lines(rectify="seed: 1").replace("  seed", "\tseed"), ":7: .*tab")


@PART.row(108, "two-monitors-of-one-source")
def two_monitors_of_one_source(bench):
    for name in ("one.yaml", "two.yaml"):
        write_monitor(bench.folder, with_lines(), name)
    says = r"one\.yaml and .*two\.yaml have the same model and source.* Change or remove one"
    with error_of(ConfigError, "bad_config", says):
        raise read_monitors(bench.folder)[bench.folder / "two.yaml"]


@PART.row(110, "settings-changed-between-tries")
def settings_changed_between_tries(bench):
    """The second try counts, with its own settings; what the first wrote down is said to differ.

    Keeping the first settings, as the catalogue has it, would judge by what nobody wants any more.
    A window that has a verdict keeps it, and other settings make another run that names it.
    """
    bench.put(traffic().assign(height=None).astype({"height": float}))
    first = bench.refused("bad_input", "missing values")
    bench.put(traffic())

    second = bench.judge(rectify={"cv": 4})

    assert second.run_id == first.run_id
    assert second.facts.settings["cv"] == 4
    assert_says("earlier try .* other settings.*cv", " ".join(second.facts.findings))
    third = bench.taken(rectify={"cv": 5}).run
    assert third.tags()["rtscv.rerun_of"] == second.run_id


@PART.row(111, "report-fails")
def report_fails(bench):
    def fail(*given: Any, **more: Any) -> str:
        raise TypeError("Evidently cannot draw this")

    bench.put(traffic())
    bench.patch.setattr(page, "write_page", fail)

    outcome = bench.judge(report=True)

    assert outcome.facts.assessed
    assert_says("report could not be written: TypeError: Evidently", outcome.facts.findings[-1])
    run = WindowRun(bench.client, outcome.run_id)
    assert run.has("verdict.json")
    assert not run.has("report.html")
    assert run.is_complete


# -- review


def challenger(bench: Bench) -> str:
    """Offer a version for review; its files are a copy of the champion's."""
    client, name = bench.client, bench.name
    bench.log_champion(GaussianNB(), *numbers())
    champion = load_champion(client, bench.monitor().model)
    registry = ModelRegistry(client, name)
    run = registry.runs.open(KEY)
    sealed = {"champion": champion.version, "model_sha256": champion.digest, "files": True}
    given = client, KEY, run.run_id, champion.model_id
    seal = seal_window(*given, day=5, model=name, **sealed)
    version = registry.versions.register(seal)
    return registry.versions.offer(version).version


def decide(bench: Bench, version: str, approve: bool, **review: Any) -> Any:
    monitor = bench.monitor(review=review)
    words = {"reviewer": "ann", "reason": f"approve: {approve}"}
    decided = review_challenger(monitor, version, approve=approve, **words)
    return promote_challenger(monitor, version) if approve else decided


@PART.row(112, "nobody-answers")
def nobody_answers(bench):
    """Silence means no. Nobody is assigned, so that one who left leaves nothing behind."""
    version = challenger(bench)
    time.sleep(1.1)
    with error_of(ReviewError, "expired", "not reviewed in time: There was no answer within"):
        decide(bench, version, True, expires="1s")
    assert ModelRegistry(bench.client, bench.name).versions.get(version).review == "expired"
    assert bench.champion(bench.monitor()) == "1"


@PART.row(112, "two-answers")
def two_answers(bench):
    version = challenger(bench)
    decide(bench, version, False)
    with error_of(ReviewError, "decided", "was rejected by ann at .* a decision stands"):
        decide(bench, version, True)
    assert bench.champion(bench.monitor()) == "1"


@PART.row(113, "files-changed-since")
def files_changed_since(bench):
    version = challenger(bench)
    champion = load_champion(bench.client, bench.monitor().model)
    place = bench.client.get_logged_model(champion.model_id).artifact_location
    file = Path(place.removeprefix("file://")) / "requirements.txt"
    file.write_text(f"{file.read_text()}\nhostile\n")

    with error_of(ReviewError, "digest_mismatch", "files of version 2 .* Do not use"):
        decide(bench, version, True)

    assert ModelRegistry(bench.client, bench.name).versions.get(version).review == "pending"
    assert bench.champion(bench.monitor()) == "1"


# -- names


@PART.row(114, "odd-model-name")
def odd_model_name(bench):
    bench.name = f"2026-01-05 50%_{'n' * 200}"
    name, bench.name = bench.name, "odd"
    log_champion(
        GaussianNB().fit(*numbers()), *numbers(), name=name, tracking_uri=bench.client.tracking_uri
    )
    bench.model = name
    bench.put(traffic())
    outcome = bench.judge()
    assert outcome.facts.assessed
    assert len(experiment_name(name)) < 120


@PART.row(114, "quote-in-the-name")
def quote_in_the_name(bench):
    name = 'ann\'s "model"'
    uri = bench.client.tracking_uri
    log_champion(GaussianNB().fit(*numbers()), *numbers(), name=name, tracking_uri=uri, alias=None)
    bench.model = name
    bench.put(traffic())
    bench.refused("no_champion", "no version with the alias 'champion'.* Set it")


for sign in (":", "/"):
    refused_settings(
        114,
        f"name-with-{'colon' if sign == ':' else 'slash'}",
        with_lines().replace("name: digits", f'name: "a{sign}b"'),
        r":2: model\.name",
    )
