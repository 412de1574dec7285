"""Models that were saved before the classes moved can still be loaded."""

import io
import json
import pickle
import zipfile
from importlib import import_module

import numpy as np
import pytest
import skops.io
from sklearn.svm import SVC

from rtscv_mlops import RTSCVClassifier, metrics
from rtscv_mlops.estimator import (
    checks,
    classifier,
    clusters,
    gates,
    kernel,
    learner,
    network,
    rows,
    statistics,
)
from rtscv_mlops.outcomes import Verdict
from tests.windows import new_blob

FORMER = {  # each class that a fitted model may hold, by the path it had
    "rtscv_mlops.metrics.separation.ClassSlack": metrics.ClassSlack,
    "rtscv_mlops.rectify.Assessment": statistics.Assessment,
    "rtscv_mlops.rectify.RTSCVClassifier": classifier.RTSCVClassifier,
    "rtscv_mlops.rectify.Verdict": Verdict,
    "rtscv_mlops.rectify.classifier.RTSCVClassifier": classifier.RTSCVClassifier,
    "rtscv_mlops.rectify.clusters.Cluster": clusters.Cluster,
    "rtscv_mlops.rectify.evidence.Assessment": statistics.Assessment,
    "rtscv_mlops.rectify.evidence.Excess": statistics.Excess,
    "rtscv_mlops.rectify.evidence.Margins": statistics.Margins,
    "rtscv_mlops.rectify.evidence.Verdict": Verdict,
    "rtscv_mlops.rectify.factory.FactoryClassifier": learner.FactoryClassifier,
    "rtscv_mlops.rectify.gates.FoldsGate": gates.FoldsGate,
    "rtscv_mlops.rectify.gates.ForestGate": gates.ForestGate,
    "rtscv_mlops.rectify.gates.Layout": gates.Layout,
    "rtscv_mlops.rectify.kernel.KernelGate": kernel.KernelGate,
    "rtscv_mlops.rectify.labels.Labels": checks.Labels,
    "rtscv_mlops.rectify.network.HiddenLayer": network.HiddenLayer,
    "rtscv_mlops.rectify.network.NetworkGate": network.NetworkGate,
    "rtscv_mlops.rectify.network.Texture": network.Texture,
    "rtscv_mlops.rectify.rows.Numbers": rows.Numbers,
    "rtscv_mlops.rectify.rows._Columns": rows._Columns,
    "rtscv_mlops.rectify.rows._Dense": rows._Dense,
    "rtscv_mlops.rectify.shift.Shift": statistics.Shift,
}

NEWER = b"rtscv_mlops.estimator.search"
"""Module of `TaughtGate`, which is newer than the move and has no former path."""


def moves():
    """Former and current module of each class, and its name."""
    for path, kind in FORMER.items():
        former, _, name = path.rpartition(".")
        if former != "rtscv_mlops.rectify":  # a shorter name of the same class
            yield former, kind.__module__, name


@pytest.fixture(scope="module", params=["kernel", "forest", "estimator"])
def fitted(request):
    """A model that found unknowns, and the window it found them in."""
    X, y, window, _ = new_blob()
    return RTSCVClassifier(SVC(), gate=request.param).fit(X, y, window), window


@pytest.mark.parametrize("path", FORMER)
def test_a_former_path_is_the_same_class(path):
    """Every former path of a class leads to the class of today, not to a copy."""
    module, _, name = path.rpartition(".")
    import_module("rtscv_mlops.rectify")  # as a saved model does: it names its own class first

    assert getattr(import_module(module), name) is FORMER[path]


def test_a_pickle_with_former_paths_is_loaded(fitted):
    """A model pickled under the former paths answers as it did."""
    model, window = fitted
    former = pickle.dumps(model, protocol=2)  # names each class as text: c<module>\n<name>\n
    for old, new, name in moves():
        former = former.replace(f"c{new}\n{name}\n".encode(), f"c{old}\n{name}\n".encode())
    assert b"rtscv_mlops.rectify.classifier" in former
    assert b"rtscv_mlops.estimator" not in former.replace(NEWER, b"")

    loaded = pickle.loads(former)

    assert type(loaded) is RTSCVClassifier
    assert loaded.assessment_ == model.assessment_
    np.testing.assert_array_equal(loaded.predict(window), model.predict(window))
    np.testing.assert_array_equal(loaded.unknown_score(window), model.unknown_score(window))


def test_a_skops_file_with_former_paths_is_loaded(fitted):
    """A model saved by skops under the former paths answers as it did."""
    model, window = fitted
    former = {(new, name): old for old, new, name in moves()}

    def rename(node):
        if isinstance(node, dict):
            key = node.get("__module__"), node.get("__class__")
            node = {name: rename(value) for name, value in node.items()}
            return {**node, "__module__": former[key]} if key in former else node
        return [rename(value) for value in node] if isinstance(node, list) else node

    file = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(skops.io.dumps(model))) as current,
        zipfile.ZipFile(file, "w") as renamed,
    ):
        for member in current.namelist():
            content = current.read(member)
            if member == "schema.json":
                content = json.dumps(rename(json.loads(content))).encode()
                assert b"rtscv_mlops.estimator" not in content.replace(NEWER, b"")
            renamed.writestr(member, content)
    trusted = skops.io.get_untrusted_types(data=file.getvalue())
    assert "rtscv_mlops.rectify.classifier.RTSCVClassifier" in trusted

    loaded = skops.io.loads(file.getvalue(), trusted=trusted)

    assert type(loaded) is RTSCVClassifier
    np.testing.assert_array_equal(loaded.predict(window), model.predict(window))
    np.testing.assert_array_equal(loaded.unknown_score(window), model.unknown_score(window))
