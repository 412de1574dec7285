"""The story of images, on small ones made here: what it finds, what it tells, where it reads."""

import io
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread
from rich.console import Console

torch = pytest.importorskip("torch", reason="needs the extra [torch]")
pytest.importorskip("skorch", reason="needs the extra [torch]")

from benchmarks.paper.images import load_images, load_known  # noqa: E402
from examples.images import data, story  # noqa: E402
from examples.images.data import Images, as_images  # noqa: E402
from examples.images.network import make_network  # noqa: E402
from rtscv_mlops.config.loading import load_monitor  # noqa: E402
from rtscv_mlops.errors import InputError  # noqa: E402
from rtscv_mlops.review.answers import list_challengers  # noqa: E402

torch.set_num_threads(1)  # The tests run side by side.

ROOT = Path(__file__).parents[1]
SIDE = 8
SIZES = (300, 90, 150)


def make_images(n_photographs=1_100, n_others=700):
    """Three classes that differ by colour, and stripes, which none of them has."""
    rng = np.random.default_rng(1)
    classes = np.arange(n_photographs) % 3
    photographs = rng.uniform(0, 0.5, (n_photographs, 3, SIDE, SIDE)).astype(np.float32)
    photographs[np.arange(n_photographs), classes] += 0.4
    others = rng.uniform(0, 0.3, (n_others, 3, SIDE, SIDE)).astype(np.float32)
    others[..., ::2] += 0.6
    return Images(photographs, classes, others)


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Two windows of the story, what it printed, and its folder."""
    folder, printed = tmp_path_factory.mktemp("images"), io.StringIO()
    make_windows = data.make_windows
    with pytest.MonkeyPatch.context() as patch:
        # A fresh process loads the challenger, and must find the class of its network.
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setattr(story, "make_windows", lambda *known: list(make_windows(*known))[::2])
        judged = story.run_story(folder, Console(file=printed, width=110), make_images(), SIZES)
    return judged, printed.getvalue(), folder


def test_new_images_are_found_and_known_ones_let_be(told):
    """A network claims nothing new in images like those it learned, and finds another kind."""
    quiet, found = told[0]

    assert not quiet.facts.detected
    assert found.facts.verdict == "unknowns"
    low, high = found.facts.unknown_rate_interval
    assert low <= found.window.true_share <= high
    assert found.precision > 0.8
    assert found.recall > 0.8
    assert found.window.accuracy > 0.9


def test_the_story_is_told(told):
    """The table, the report and the picture are there, and a challenger waits for a person."""
    judged, printed, folder = told

    for one in judged:
        (row,) = [line for line in printed.splitlines() if f" {one.window.story}  " in line]
        assert one.facts.verdict in row
    assert f"Right verdicts: {sum(one.is_right for one in judged)} of 2" in printed
    assert f"review show {folder}/photographs.yaml" in printed
    assert (folder / "photographs" / "report.html").is_file()
    assert imread(folder / "story-images.png").std() > 0.1
    (waiting,) = list_challengers(load_monitor(folder / "photographs.yaml"))
    assert waiting.review == "pending"


def test_a_fit_can_be_repeated(told):
    """The seeded network gives the same model twice, so that no finding says otherwise."""
    images = make_images(120)

    first, second = (
        make_network(epochs=1)
        .fit(images.photographs, images.classes)
        .predict_proba(images.photographs)
        for _ in range(2)
    )

    np.testing.assert_array_equal(first, second)
    findings = " ".join(told[0][1].facts.findings)
    assert "cannot be repeated" not in findings


def test_windows_share_no_image():
    """The windows hold what nobody was taught, none of it twice, and a known share of others."""
    images = make_images()
    champion = data.make_champion(images, make_network(epochs=1), *SIZES[:2])

    windows = list(data.make_windows(images, champion, SIZES[2]))

    verdicts = [window.expected for window in windows]
    assert verdicts == ["no_change", "drift", "unknowns", "unknowns_and_drift"]
    assert [window.true_share for window in windows] == pytest.approx([0, 0, 0.15, 0.15], abs=0.01)
    lit = [window.rows.filter(regex=r"^f\d+$").to_numpy() for window in windows]
    taught = champion.X.reshape(len(champion.X), -1)
    seen = [row.tobytes() for row in np.concatenate([taught, lit[0], lit[2]])]
    assert len(set(seen)) == len(seen)
    assert lit[1].max() < lit[0].max()


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 3, 1)], ids=["first", "last"])
def test_the_layout_of_pixels_is_found(order):
    """Images come out alike, whether a table has their channels first or last."""
    ramp = np.linspace(0, 200, 32 * 32).reshape(32, 32)
    images = np.stack([ramp, ramp[::-1], 255 - ramp])[None].repeat(3, axis=0).round()

    read = as_images(images.transpose(order).reshape(3, -1))

    np.testing.assert_allclose(read, images / 255, atol=1e-6)


@pytest.fixture
def empty_folder(tmp_path, monkeypatch):
    """A folder without data, and nothing of another one remembered."""
    monkeypatch.setenv("RTSCV_DATA_DIR", str(tmp_path))
    for remembered in (load_known, load_images):
        remembered.cache_clear()
    return tmp_path


def test_missing_data_is_a_sentence(empty_folder, monkeypatch):
    """Without files and without OpenML, the story says where the images come from."""

    def no_answer(*args, **kwargs):
        raise OSError("no route to host")

    monkeypatch.setattr(data, "fetch_openml", no_answer)

    with pytest.raises(InputError, match=r"(?s)does not exist.*University of Toronto.*no route"):
        story.run_story(empty_folder, Console(file=io.StringIO()))


def test_openml_is_asked_where_files_are_missing(empty_folder, monkeypatch):
    """Tables of pixels become images in [0, 1], and text becomes classes."""
    asked = []

    def answer(name, **kwargs):
        asked.append(name)
        return np.full((4, 3072), 51), np.array(["0", "1", "2", "3"], dtype=object)

    monkeypatch.setattr(data, "fetch_openml", answer)

    images = data.load()

    assert asked == ["CIFAR_10", "SVHN"]
    assert images.photographs.shape == images.house_numbers.shape == (4, 3, 32, 32)
    assert sorted(images.classes.tolist()) == [0, 1, 2, 3]
    np.testing.assert_allclose(images.photographs, 0.2)
