"""Any classifier can be rectified: scikit-learn's, boosted trees, networks; weighed or not."""

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import ExtraTreesClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from rtscv_mlops import RTSCVClassifier
from rtscv_mlops.errors import InputError
from rtscv_mlops.estimator.network import Texture
from tests.windows import new_blob, split_digits

SKLEARN = {
    "knn": KNeighborsClassifier(),
    "naive Bayes": GaussianNB(),
    "network": make_pipeline(StandardScaler(), MLPClassifier((8,), alpha=1, solver="lbfgs")),
    "SVM": SVC(),
    "SVM with probabilities": CalibratedClassifierCV(SVC(), ensemble=False),
    "trees": ExtraTreesClassifier(20),
    "one tree": DecisionTreeClassifier(min_samples_leaf=5),
    "pipeline": make_pipeline(StandardScaler(), SVC()),
    "search": GridSearchCV(KNeighborsClassifier(), {"n_neighbors": [3, 5]}, cv=2),
    "vote": VotingClassifier([("knn", KNeighborsClassifier()), ("bayes", GaussianNB())]),
    "one against the rest": OneVsRestClassifier(SVC()),
}
MODES = {"paper": {"mode": "paper", "sample_rate": 0.4}, "monitor": {}}


def finds_the_fourth(model):
    """Fit three blobs and a window with a fourth; most of it, and little else, is unknown."""
    X, y, window, truth = new_blob()
    model.fit(X.astype(np.float32), y, window.astype(np.float32))
    answers = model.predict(window.astype(np.float32))
    assert np.mean(answers[truth == 3] == model.unknown_label_) > 0.8
    assert np.mean(answers[truth < 3] == truth[truth < 3]) > 0.85
    return model


@pytest.mark.parametrize("name", SKLEARN)
@pytest.mark.parametrize("mode", MODES)
def test_scikit_learn_s_classifiers(name, mode):
    """Whatever a classifier offers beyond fit and predict, it can be rectified in both modes."""
    finds_the_fourth(RTSCVClassifier(SKLEARN[name], **MODES[mode]))


@pytest.mark.parametrize(
    "estimator",
    [
        SVC(),
        RidgeClassifier(),
        OneVsRestClassifier(SVC()),
        DecisionTreeClassifier(max_depth=4),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_the_estimator_as_its_own_gate(estimator):
    """Decision values, probabilities or bare answers: each will do as scores of the gate."""
    X, y, window, truth = new_blob(n_new=120)

    model = RTSCVClassifier(estimator, gate="estimator").fit(X, y, window)

    assert np.sum(truth[model.unknown_indices_] == 3) > 0.8 * max(40, len(model.unknown_indices_))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("gate", ["auto", "estimator"])
def test_xgboost(mode, gate):
    """XGBoost, which insists on labels 0, 1, 2 without a gap."""
    xgboost = pytest.importorskip("xgboost", reason="needs the extra [boosting]")

    learner = xgboost.XGBClassifier(n_estimators=15, n_jobs=1)
    finds_the_fourth(RTSCVClassifier(learner, gate=gate, **MODES[mode]))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("gate", ["auto", "estimator"])
def test_lightgbm(mode, gate):
    """LightGBM."""
    lightgbm = pytest.importorskip("lightgbm", reason="needs the extra [boosting]")

    learner = lightgbm.LGBMClassifier(n_estimators=15, min_child_samples=5, n_jobs=1, verbose=-1)
    finds_the_fourth(RTSCVClassifier(learner, gate=gate, **MODES[mode]))


def network(*layers, n_hidden, **settings):
    """A skorch network of these layers, and a last one that grows with the labels."""
    torch = pytest.importorskip("torch", reason="needs the extra [torch]")
    skorch = pytest.importorskip("skorch", reason="needs the extra [torch]")

    class Network(torch.nn.Module):
        def __init__(self, n_outputs=2):
            super().__init__()
            made = [getattr(torch.nn, name)(*sizes) for name, *sizes in layers]
            self.layers = torch.nn.Sequential(*made, torch.nn.Linear(n_hidden, n_outputs))

        def forward(self, X):
            return self.layers(X)

    class GrowOutput(skorch.callbacks.Callback):
        def on_train_begin(self, net, X=None, y=None, **kwargs):
            net.set_params(module__n_outputs=len(np.unique(y)))

    torch.manual_seed(0)
    return skorch.NeuralNetClassifier(
        Network,
        criterion=torch.nn.CrossEntropyLoss,
        optimizer=torch.optim.Adam,
        batch_size=32,
        train_split=None,
        callbacks=[GrowOutput],
        verbose=0,
        **settings,
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("gate", ["auto", "kernel", "estimator"])
def test_skorch(mode, gate):
    """A torch network, whose last layer grows with the labels it is given."""
    learner = network(("Linear", 2, 16), ("ReLU",), n_hidden=16, lr=0.03, max_epochs=20)

    finds_the_fourth(RTSCVClassifier(learner, gate=gate, **MODES[mode]))


def test_a_network_is_fitted_alike_each_time():
    """The seed is that of the classifier, and torch goes on as if nobody had drawn from it."""
    learner = network(("Linear", 2, 16), ("ReLU",), n_hidden=16, lr=0.03, max_epochs=3)
    import torch

    X, y, window, _ = new_blob()
    X, window = X.astype(np.float32), window.astype(np.float32)
    first = RTSCVClassifier(learner).fit(X, y, window)
    torch.rand(1)  # Somebody else draws, too.
    before = torch.random.get_rng_state()
    second = RTSCVClassifier(learner).fit(X, y, window)
    other = RTSCVClassifier(learner, random_state=1).fit(X, y, window)
    after = torch.random.get_rng_state()  # Answers draw from it too.

    asked = X[:50]
    assert np.array_equal(first.predict_proba(asked), second.predict_proba(asked))
    assert np.array_equal(first.window_scores_, second.window_scores_)
    assert not np.array_equal(first.predict_proba(asked), other.predict_proba(asked))
    assert torch.equal(after, before)


@pytest.mark.parametrize("hidden", [(), (0, 6)], ids=["nothing new", "new digits"])
def test_images_are_compared_in_the_network_s_own_features(hidden):
    """On images, a skorch network's hidden layer tells unknowns from rows it was trained on."""
    X, y, window, truth = split_digits(hidden=hidden, n_training=900, n_window=600)
    y, truth = np.searchsorted(np.unique(y), y), np.isin(truth, hidden)
    images, window = ((rows / 16).reshape(-1, 1, 8, 8).astype(np.float32) for rows in (X, window))

    learner = network(
        ("Conv2d", 1, 8, 3),
        ("ReLU",),
        ("Flatten",),
        ("Linear", 288, 32),
        ("ReLU",),
        n_hidden=32,
        lr=0.003,
        max_epochs=15,
    )

    model = RTSCVClassifier(learner).fit(images, y, window)

    assert type(model.gate_).__name__ == "NetworkGate"
    assert model.assessment_.verdict == ("unknowns" if hidden else "no_change")
    if hidden:
        assert np.mean(truth[model.unknown_indices_]) > 0.8
        assert roc_auc_score(truth, model.unknown_score(window)) > 0.95


def test_texture_is_where_unknowns_hide_from_a_network():
    """Digits behind a mesh are found, though the network sees averages that hide all of it."""
    X, y, window, _ = split_digits(hidden=(), n_training=900, n_window=600)
    images, window = (np.kron((rows / 16).reshape(-1, 1, 8, 8), np.ones((2, 2))).astype(np.float32)
                      for rows in (X, window))  # fmt: skip
    meshed = np.arange(600) < 120
    mesh = np.indices((16, 16)).sum(axis=0) % 2
    window[meshed] += 0.15 * (2 * mesh - 1)  # no average over two by two pixels changes
    learner = network(
        ("AvgPool2d", 2), ("Flatten",), ("Linear", 64, 32), ("ReLU",), n_hidden=32,
        lr=0.003, max_epochs=15,
    )  # fmt: skip

    model = RTSCVClassifier(learner).fit(images, y, window)

    assert model.assessment_.verdict in ("unknowns", "unknowns_and_drift")
    assert meshed[model.unknown_indices_].mean() > 0.9
    assert roc_auc_score(meshed, model.window_scores_) > 0.95


def test_texture_has_a_pitch():
    """A coarse and a fine pattern of one strength differ in texture; a shifted one does not."""
    pytest.importorskip("torch", reason="needs the extra [torch]")
    places = np.arange(32)
    stripes = {pitch: np.tile(np.sin(2 * np.pi * places / pitch), (32, 1)) for pitch in (4, 8)}
    shifted = np.tile(np.sin(2 * np.pi * (places + 4) / 8), (32, 1))
    images = np.stack([stripes[4], stripes[8], shifted])[:, None].astype(np.float32)

    fine, coarse, moved = Texture(floor=1e-3)(images)

    np.testing.assert_allclose(coarse, moved, atol=0.02)
    assert np.abs(fine - coarse).max() > 0.5
    assert Texture.applies(images)
    assert not Texture.applies(images.reshape(3, -1))
    assert not Texture.applies(images[:, :, :5])


def test_a_network_gate_needs_a_network():
    """The features of a model without layers are asked for in vain, and the answer says so."""
    X, y, window, _ = new_blob()

    with pytest.raises(InputError, match="gate='network' needs a skorch network, got SVC"):
        RTSCVClassifier(SVC(), gate="network").fit(X, y, window)


# -- weights


@pytest.mark.parametrize("hidden", [(), (8,)], ids=["nothing new", "new class"])
def test_weights_are_the_estimator_s(hidden):
    """The last fit is the estimator's on the same rows and weights; added rows weigh the mean."""
    X, y, window, _ = split_digits(hidden=hidden, n_training=400, n_window=300)
    weight = np.random.default_rng(0).uniform(0.5, 2, len(y))

    model = RTSCVClassifier(GaussianNB(var_smoothing=1e-2))
    model.fit(X, y, window, sample_weight=weight)

    unknown = model.unknown_indices_
    by_hand = GaussianNB(var_smoothing=1e-2).fit(
        np.vstack([X, window[unknown]]),
        np.append(y, np.full(len(unknown), y.max() + 1)),
        sample_weight=np.append(weight, np.full(len(unknown), weight.mean())),
    )
    assert (len(unknown) > 0) == bool(hidden)
    np.testing.assert_allclose(model.predict_proba(window), by_hand.predict_proba(window))


def test_weights_reach_the_last_step_of_a_pipeline():
    """A pipeline's learner is weighed as if it stood alone."""
    X, y, _, _ = new_blob()
    weight = np.where(y == 0, 10.0, 0.1)
    learner = LogisticRegression()

    piped = RTSCVClassifier(make_pipeline(StandardScaler(), learner))
    piped.fit(X, y, sample_weight=weight)

    alone = LogisticRegression().fit(StandardScaler().fit_transform(X), y, sample_weight=weight)
    np.testing.assert_allclose(piped.estimator_[-1].coef_, alone.coef_)


@pytest.mark.parametrize(
    "estimator",
    [KNeighborsClassifier(), make_pipeline(StandardScaler(), KNeighborsClassifier())],
    ids=["alone", "pipeline"],
)
def test_weights_are_refused_where_they_would_be_ignored(estimator):
    """An estimator that takes no weights is named, instead of the weights being dropped."""
    X, y, window, _ = new_blob()

    with pytest.raises(
        InputError, match=r"given, but KNeighborsClassifier does not support it\. Leave"
    ):
        RTSCVClassifier(estimator).fit(X, y, window, sample_weight=np.ones(len(y)))


# -- folds


@pytest.mark.parametrize(
    "cv",
    [2, np.int64(5), KFold(4, shuffle=True, random_state=0), StratifiedKFold(3)],
    ids=["2", "int64", "KFold", "StratifiedKFold"],
)
@pytest.mark.parametrize("gate", ["kernel", "estimator"])
def test_any_folds_that_cover_all_rows(cv, gate):
    """The monitor takes a number of folds or any splitter whose test folds cover all rows."""
    finds_the_fourth(RTSCVClassifier(SVC(), cv=cv, gate=gate))
