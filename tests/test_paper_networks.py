"""The networks of the paper's benchmark: small, on images made here."""

from importlib.util import find_spec

import numpy as np
import pytest
from scipy.special import logsumexp, softmax

torch = pytest.importorskip("torch", reason="needs the extra [torch]")
if find_spec("pytorch_ood") is None:
    pytest.skip("needs benchmarks/requirements.txt", allow_module_level=True)

from benchmarks.paper import images, networks  # noqa: E402
from benchmarks.paper.images import Known, load_images, load_known  # noqa: E402
from benchmarks.paper.nets import make_net  # noqa: E402
from rtscv_mlops.errors import InputError  # noqa: E402

torch.set_num_threads(1)  # The tests run side by side.


@pytest.fixture(scope="module")
def known():
    """Three classes of coloured noise."""
    rng = np.random.default_rng(0)
    y = np.arange(240) % 3
    X = rng.uniform(0, 0.4, (240, 3, 32, 32)).astype(np.float32)
    X[np.arange(240), y] += 0.5
    return Known(X[:150], y[:150], X[150:180], X[180:], y[180:])


@pytest.fixture(scope="module")
def plain(known):
    """A network that knows the three."""
    return make_net("ResNet", 0, epochs=2).fit(known.X, known.y)


@pytest.mark.parametrize("name", ["ResNet", "DenseNet"])
def test_a_network_learns_and_grows(name, known):
    """Both networks take 32 by 32 images, have an output per label, and learn an easy task."""
    net = make_net(name, 0, epochs=3).fit(known.X, known.y)

    assert net.predict_proba(known.later).shape == (60, 3)
    assert np.mean(net.predict(known.later) == known.truth) > 0.6


def test_detectors_are_what_their_names_say(plain, known):
    """pytorch-ood's scores are the definitions: higher for unknown, one for each image."""
    module = plain.module_.eval()
    scores = networks.make_detectors(module, known)
    with torch.no_grad():
        logits = module(torch.as_tensor(known.later)).numpy()

    assert list(scores) == ["baseline", "odin", "mahalanobis", "energy", "openmax"]
    np.testing.assert_allclose(
        scores["baseline"](known.later), -softmax(logits, axis=1).max(axis=1), atol=1e-5
    )
    np.testing.assert_allclose(scores["energy"](known.later), -logsumexp(logits, axis=1), atol=1e-4)
    for score in scores.values():
        assert score(known.later).shape == (60,)


def test_mahalanobis_is_the_nearest_class_s_distance(plain, known):
    """The score grows with the distance to the nearest class mean in the last layer's features."""
    module = plain.module_.eval()
    score = networks.make_detectors(module, known)["mahalanobis"]
    far = np.ones((4, 3, 32, 32), dtype=np.float32)

    assert score(far).min() > np.median(score(known.later))


def test_a_window_and_what_comes_after_it_share_no_image(known):
    """Half of the later images are the window, the others are judged; a third is unknown."""
    unknown = np.zeros((40, 3, 32, 32), dtype=np.float32)
    unknown += np.arange(40)[:, None, None, None]

    window = networks.draw_window(known, unknown, seed=0)

    seen = {row.tobytes() for row in window.seen}
    assert len(seen) == 45
    assert not seen & {row.tobytes() for row in window.later}
    assert np.sum(window.later_truth == -1) == 15
    for row, truth in zip(window.later[:30], window.later_truth[:30], strict=True):
        assert row[truth].mean() > 0.5


def test_figures_are_the_paper_s(known):
    """Accuracy over known images, a rejected one being wrong; detection over unknown ones."""
    truth = np.array([0, 0, 1, 1, -1, -1])
    judged = networks.Judged(
        score=np.array([0.1, 0.2, 0.9, 0.3, 0.8, 0.95]),
        is_unknown=np.array([False, False, True, False, False, True]),
        predicted=np.array([0, 1, 2, 1, 0, 2]),
    )

    found = networks._figures("x", judged, truth)

    assert found == {
        "auroc_x": pytest.approx(7 / 8),
        "detected_x": 0.5,
        "rejected_x": 0.25,
        "accuracy_x": 0.5,
    }


def test_missing_images_say_where_they_come_from(monkeypatch, tmp_path):
    """Without the file, one sentence says where to get it and how to store it."""
    monkeypatch.setenv("RTSCV_DATA_DIR", str(tmp_path))
    load_images.cache_clear()

    with pytest.raises(InputError, match="SVHN comes from the SVHN page of Stanford University"):
        load_images("SVHN")


def test_a_set_without_a_training_part_is_split(monkeypatch, tmp_path):
    """Seven tenths of such a set are learned from, a tenth of those sets thresholds."""
    monkeypatch.setenv("RTSCV_DATA_DIR", str(tmp_path))
    stored = np.zeros((100, 32, 32, 3), dtype=np.uint8)
    np.savez(tmp_path / images.FILES["SVHN"][0], x=stored, y=np.arange(100) % 10)
    load_known.cache_clear()

    known = load_known("SVHN")
    load_known.cache_clear()

    assert [len(rows) for rows in (known.X, known.held_out, known.later)] == [63, 7, 30]
    assert known.X.shape[1:] == (3, 32, 32)
