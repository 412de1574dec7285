"""What others write to MLflow forges no decision, runs no code and stops no window."""

import json
import sqlite3
from hashlib import sha256

import mlflow
import pytest

from benchmarks.deployments import MODEL, NEW, QUIET
from rtscv_mlops.errors import ConfigError, ModelError, ReviewError, ServiceError
from rtscv_mlops.models.save import verify_version
from rtscv_mlops.models.trust import model_digest
from rtscv_mlops.operations.overview import read_report, show_window
from rtscv_mlops.outcomes import ReviewChannel
from rtscv_mlops.pipeline import run as pipeline
from rtscv_mlops.review import answers
from rtscv_mlops.tracking import signing, tags
from rtscv_mlops.tracking.journal import Entry, Record
from rtscv_mlops.tracking.ledger import Ledger
from rtscv_mlops.tracking.registry import ModelRegistry, read_facts, write_facts
from rtscv_mlops.tracking.runs import WindowRun
from rtscv_mlops.window import Interval
from tests.deployments import deployed, judged_copy

KEY = "k" * 32


@pytest.fixture
def judged(tmp_path, monkeypatch):
    """A deployment of one's own with a pending challenger."""
    monkeypatch.delenv(signing.KEY_VARIABLE, raising=False)
    return judged_copy(tmp_path)


def registry_of(deployment):
    return ModelRegistry(deployment.client, MODEL)


def approve(deployment, **given):
    """Approve the challenger that waits, as a person who saw it."""
    monitor = deployment.monitor()
    given = {"approve": True, "reviewer": "ann", "reason": "looks right", **given}
    return answers.review_challenger(monitor, None, **given)


def doctor(deployment, run_id, **changes):
    """Change the verdict's file, as everyone who may write to MLflow can."""
    run = WindowRun(deployment.client, run_id)
    write_facts(run, type(read_facts(run))(**(dict(read_facts(run)) | changes)))


class TestModels:
    """F1: nothing is loaded that is not what was sealed."""

    def test_a_model_by_tags_is_not_offered(self, tmp_path):
        """A foreign model in the run's tags between two tasks is not registered, nor loaded."""
        deployment = deployed(tmp_path)
        monitor, day = deployment.monitor(), Interval.day(NEW)
        done = pipeline.rectify_window(monitor, day)
        proof = tmp_path / "code-ran"

        class Foreign(mlflow.pyfunc.PythonModel):
            def load_context(self, context):
                proof.write_text("foreign code")

            def predict(self, context, model_input, params=None):
                return ["0"] * len(model_input)

        with mlflow.start_run(run_id=done.run_id):
            foreign = mlflow.pyfunc.log_model(name="model", python_model=Foreign())
        proof.unlink(missing_ok=True)  # MLflow tries a model when it logs it.
        digest = model_digest(deployment.client, f"models:/{foreign.model_id}")
        named = {tags.MODEL_ID: foreign.model_id, tags.MODEL_SHA256: digest}
        for name, text in named.items():
            deployment.client.set_tag(done.run_id, name, text)
        deployment.client.set_logged_model_tags(foreign.model_id, {tags.MODEL_SHA256: digest})

        pipeline.write_report(monitor, done.run_id, done.facts_sha256)
        version = pipeline.register_challenger(monitor, done.run_id, done.facts_sha256)

        seal = registry_of(deployment).versions.get(version).seal
        assert seal.model_id == read_facts(WindowRun(deployment.client, done.run_id)).model_id
        assert seal.model_id != foreign.model_id
        assert not proof.exists()

    def test_a_version_that_another_made_first_does_not_count(self, tmp_path):
        """A version with the window's key and its own digest is not taken for the challenger."""
        deployment = deployed(tmp_path)
        monitor, client = deployment.monitor(), deployment.client
        done = pipeline.rectify_window(monitor, Interval.day(NEW))
        key = WindowRun(client, done.run_id).tags()[tags.KEY]
        source = client.get_model_version_by_alias(MODEL, "champion").source
        named = {tags.KIND: "challenger", tags.KEY: key, tags.MODEL_SHA256: "e" * 64}
        foreign = client.create_model_version(MODEL, source, done.run_id, tags=named)

        pipeline.write_report(monitor, done.run_id, done.facts_sha256)
        version = pipeline.register_challenger(monitor, done.run_id, done.facts_sha256)

        assert version != str(foreign.version)
        known = [each.version for each in registry_of(deployment).versions.all()]
        assert known == [version]
        [problem] = registry_of(deployment).decisions.history().problems
        assert f"Version {foreign.version} says that it is a challenger" in problem

    def test_a_pickle_is_not_tried_without_permission(self, judged):
        """A model that would run its own code is refused before a process loads it."""
        client, settings = judged.client, judged.monitor().model

        class Foreign(mlflow.pyfunc.PythonModel):
            def predict(self, context, model_input, params=None):
                return ["0"] * len(model_input)

        with mlflow.start_run():
            logged = mlflow.pyfunc.log_model(name="model", python_model=Foreign())

        with pytest.raises(ModelError, match="cannot be refitted"):
            verify_version(client, f"models:/{logged.model_id}", settings=settings)


class TestSeals:
    """F4: what a reviewer reads is what was judged."""

    @pytest.mark.parametrize("changes", [{"headline": "All is well."}, {"blocked": ""}])
    def test_doctored_facts_are_refused(self, judged, changes):
        """A changed verdict is refused on the page, by the question and by an approval."""
        registry, monitor = registry_of(judged), judged.monitor()
        pending = registry.versions.pending()
        doctor(judged, pending.run_id, **{"rows": 1, **changes})

        for look in (
            lambda: show_window(monitor, pending.run_id),
            lambda: answers.ask_reviewer(monitor, pending.version),
            lambda: answers.show_challenger(monitor, pending.version),
        ):
            with pytest.raises(ServiceError, match="is not the one that was sealed"):
                look()
        with pytest.raises(ReviewError, match="is not the one that was sealed"):
            approve(judged)
        assert registry.versions.champion() == pending.champion_version

    def test_a_doctored_report_is_refused(self, judged):
        """A changed report is refused on the page and by an approval, whatever its tag says."""
        pending = registry_of(judged).versions.pending()
        run = WindowRun(judged.client, pending.run_id)
        run.write_text("report.html", "<p>All is well.</p>")
        digest = sha256(b"<p>All is well.</p>").hexdigest()
        judged.client.set_tag(pending.run_id, tags.REPORT_SHA256, digest)

        with pytest.raises(ServiceError, match="is not the one that was written"):
            read_report(judged.monitor(), pending.run_id)
        with pytest.raises(ReviewError, match="is not the one that was written"):
            approve(judged)

    def test_a_change_after_the_approval_stops_the_promotion(self, judged):
        """Promotion looks again: days may lie between the two."""
        registry, monitor = registry_of(judged), judged.monitor()
        decided = approve(judged)
        doctor(judged, decided.run_id, rows=1)

        with pytest.raises(ReviewError, match="is not the one that was sealed"):
            answers.promote_challenger(monitor, decided.version)
        assert registry.versions.champion() == decided.champion_version

    def test_facts_that_were_changed_between_tasks_are_refused(self, tmp_path):
        """The next task compares the verdict with what the task before it has told Airflow."""
        deployment = deployed(tmp_path)
        monitor = deployment.monitor()
        done = pipeline.rectify_window(monitor, Interval.day(NEW))
        doctor(deployment, done.run_id, blocked="", headline="All is well.")

        for stage in (pipeline.write_report, pipeline.register_challenger, pipeline.raise_alert):
            with pytest.raises(ServiceError, match="is not the one that was sealed"):
                stage(monitor, done.run_id, done.facts_sha256)
        assert registry_of(deployment).versions.all() == []

    def test_a_doctored_window_can_be_judged_again(self, judged):
        """Running it again says what was changed; the next try judges it in a new run."""
        day = Interval.day(QUIET)
        before = pipeline.run_window(judged.monitor(), day).run_id
        doctor(judged, before, headline="Unknowns everywhere.")

        with pytest.raises(ServiceError, match="is not the one that was sealed"):
            pipeline.run_window(judged.monitor(), day)
        after = pipeline.run_window(judged.monitor(), day)

        assert after.run_id != before
        assert after.facts.verdict == "no_change"

    def test_tags_hide_no_review(self, judged):
        """F11: a tag that calls the pending version a duplicate, or another kind, hides nothing."""
        registry = registry_of(judged)
        pending = registry.versions.pending()
        for name, text in ((tags.DUPLICATE_OF, "1"), (tags.KIND, "x"), (tags.STATE, "")):
            judged.client.set_model_version_tag(MODEL, pending.version, name, text)

        assert registry.versions.pending().version == pending.version


class TestLedger:
    """F3, F5, F6, F9 to F11: the ledger among others."""

    @pytest.fixture
    def key(self, monkeypatch):
        monkeypatch.setenv(signing.KEY_VARIABLE, "a key that nobody can guess")

    def test_garbage_in_the_next_place_stops_nothing(self, judged):
        """F11: a param in the place of the next record is passed over and told."""
        registry = registry_of(judged)
        number = len(registry.decisions.history().records) + 1
        ledger = Ledger.open(judged.client, MODEL)
        judged.client.log_param(ledger.run_id, f"record.{number:06d}", "garbage")

        decided = approve(judged)

        assert decided.is_approved
        [problem] = registry.decisions.history().problems
        assert f"'record.{number:06d}' in the ledger is not a valid claim" in problem

    def test_a_forged_record_counts_for_nothing_with_a_key(self, key, tmp_path):
        """F3b: an approval that another wrote into the ledger is passed over and told."""
        deployment = deployed(tmp_path)
        deployment.run(NEW)
        registry = registry_of(deployment)
        pending = registry.versions.pending()
        records = registry.versions.journal().read()
        seen = {"champion": pending.champion_version, "seal": pending.seal.digest}
        entry = Entry("approved", pending.version, pending.key, "ann", "fine", seen)
        forged = Record.seal(entry, records)
        run_id = Ledger.open(deployment.client, MODEL).run_id
        deployment.client.log_param(run_id, f"record.{forged.number:06d}", forged.text)

        assert registry.versions.pending().version == pending.version
        with pytest.raises(ReviewError, match="was not approved"):
            registry.decisions.promote(pending.version)
        assert "is not a valid claim" in str(registry.decisions.history().problems)

    def test_a_swapped_ledger_is_refused_with_a_key(self, key, tmp_path):
        """F3a: a copy of the ledger, behind the experiment's tag, is not taken for the ledger."""
        deployment = deployed(tmp_path)
        deployment.run(NEW)
        client, ledger = deployment.client, Ledger.open(deployment.client, MODEL)
        params = client.get_run(ledger.run_id).data.params
        copy = client.create_run(ledger.experiment_id).info.run_id
        for name, text in params.items():
            client.log_param(copy, name, text.replace("unknowns", "no_change"))
        client.set_experiment_tag(ledger.experiment_id, tags.LEDGER, copy)

        with pytest.raises(ServiceError, match="was not founded with the key"):
            registry_of(deployment).decisions.history()

    def test_a_process_without_the_key_may_not_write(self, key, tmp_path, monkeypatch):
        """A signed ledger takes no claim of a process that cannot sign; reading is open."""
        deployment = deployed(tmp_path)
        deployment.run(NEW)
        monkeypatch.delenv(signing.KEY_VARIABLE)

        assert registry_of(deployment).versions.pending() is not None
        with pytest.raises(ConfigError, match="this process has no key"):
            approve(deployment)

    def test_a_key_is_introduced_by_repair(self, judged, monkeypatch):
        """What was recorded before there was a key is signed once a person has looked."""
        before = registry_of(judged).versions.pending()
        monkeypatch.setenv(signing.KEY_VARIABLE, "a key that nobody can guess")
        with pytest.raises(ServiceError, match="audit repair"):
            registry_of(judged).versions.pending()

        told = answers.repair_audit(judged.monitor(), "ann", "we have a key now")

        assert "A new ledger" in told
        assert registry_of(judged).versions.pending().version == before.version
        history = registry_of(judged).decisions.history()
        assert (history.records[-1].kind, history.problems) == ("repaired", ())

    def test_reading_creates_nothing(self, tmp_path):
        """F5: a look at a model without windows leaves MLflow as it was."""
        deployment = deployed(tmp_path)
        before = {each.name for each in deployment.client.search_experiments()}
        registry = registry_of(deployment)

        assert registry.versions.all() == []
        assert registry.runs.find() == []
        assert registry.decisions.history().records == ()

        assert {each.name for each in deployment.client.search_experiments()} == before

    def test_models_share_no_experiment(self, tmp_path):
        """F6: the ledger of each model is in an experiment of its own."""
        deployment = deployed(tmp_path)
        homes = []
        for model in ("a", "b"):
            run_id = Ledger.open(deployment.client, model).run_id
            homes.append(deployment.client.get_run(run_id).info.experiment_id)

        assert len(set(homes)) == 2

    def test_a_ledger_that_is_gone_is_said_and_repaired(self, judged):
        """F9: every command names the way back, and the record says that it was taken."""
        run_id = Ledger.open(judged.client, MODEL).run_id
        with sqlite3.connect(judged.folder / "mlflow.db") as database:
            for table in ("params", "tags", "latest_metrics", "metrics", "runs"):
                database.execute(f"DELETE FROM {table} WHERE run_uuid = ?", (run_id,))

        with pytest.raises(ServiceError, match="audit repair"):
            registry_of(judged).decisions.history()
        answers.repair_audit(judged.monitor(), "ann", "gc took it")

        [record] = registry_of(judged).decisions.history().records
        assert (record.kind, record.who) == ("repaired", "ann")
        assert registry_of(judged).versions.pending() is None

    def test_a_renamed_model_keeps_its_history(self, judged):
        """F10: nothing is judged under the new name until its history was taken over."""
        approve(judged, approve=False)
        judged.client.rename_registered_model(MODEL, "renamed")
        registry = ModelRegistry(judged.client, "renamed")
        with pytest.raises(ServiceError, match="the model was renamed"):
            Ledger.open(judged.client, "renamed")

        settings = judged.monitor().model.model_copy(update={"name": "renamed"})
        monitor = judged.monitor().model_copy(update={"model": settings})
        answers.repair_audit(monitor, "ann", "renamed")

        assert "rejected" in [record.kind for record in registry.decisions.history().records]
        assert registry.versions.pending() is None

    def test_a_checkpoint_shows_what_was_written_anew(self, judged):
        """F3: a record that was replaced as a whole differs from a checkpoint kept elsewhere."""
        approve(judged, approve=False)
        monitor = judged.monitor()
        taken = answers.take_checkpoint(monitor)
        assert answers.verify_audit(monitor, taken).problems == ()
        client, ledger = judged.client, Ledger.open(judged.client, MODEL)
        copy = client.create_run(ledger.experiment_id).info.run_id
        for name, text in client.get_run(ledger.run_id).data.params.items():
            client.log_param(copy, name, text.replace("rejected", "approved"))
        client.set_experiment_tag(ledger.experiment_id, tags.LEDGER, copy)

        problems = answers.verify_audit(monitor, taken).problems

        assert any("is not the one of the checkpoint" in problem for problem in problems)

    def test_time_runs_forward(self, judged):
        """F3c: a record that is dated before the one before it is told."""
        approve(judged, approve=False)
        registry = registry_of(judged)
        records = registry.versions.journal().read()
        entry = Entry("expired", "99", KEY, "ann", "fine")
        content = json.loads(Record.seal(entry, records).text) | {"at": "2020-01-01T00:00:00"}
        ledger = Ledger.open(judged.client, MODEL)
        ledger.claim(f"record.{len(records) + 1:06d}", json.dumps(content))

        problems = registry.decisions.history().problems

        assert any("has an earlier time than the record before" in each for each in problems)


class TestChannels:
    """F2: a decision says how it came, and who vouches for the name in it."""

    def test_a_record_names_its_channel(self, judged):
        """The command line's names are claimed; Airflow's are proven."""
        decided = approve(judged, channel=ReviewChannel.REQUIRED_ACTIONS)
        answers.promote_challenger(judged.monitor(), decided.version)
        answers.roll_back(judged.monitor(), "bob", "slow", ReviewChannel.COMMAND_LINE)

        records = registry_of(judged).decisions.history().records
        ways = {record.kind: record.identity for record in records}
        assert ways["approved"] == ways["promoted"] == "required actions, Airflow"
        assert ways["rolled_back"] == "command line, claimed"

    def test_named_reviewers_close_what_proves_nothing(self, judged):
        """With airflow.reviewers, a tag in MLflow and the command line decide nothing."""
        monitor = judged.monitor(more="airflow: {reviewers: [ann]}")
        registry = registry_of(judged)
        pending = registry.versions.pending()
        for name, text in ((tags.REVIEWER, "ann"), (tags.REASON, "x"), (tags.REVIEW, "approved")):
            judged.client.set_model_version_tag(MODEL, pending.version, name, text)
        told = []

        assert answers.collect_answer(monitor, pending.version, told.append) is None
        assert "Decisions by a tag in MLflow are closed here" in told[0]
        for channel in (ReviewChannel.COMMAND_LINE, ReviewChannel.PYTHON):
            with pytest.raises(ReviewError, match="only Airflow proves who someone is"):
                answers.review_challenger(
                    monitor, None, approve=True, reviewer="ann", reason="x", channel=channel
                )
        assert registry.versions.pending().version == pending.version
