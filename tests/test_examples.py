"""The examples run, and show what they promise."""

import io

import numpy as np
import pytest
from matplotlib.image import imread
from rich.console import Console

from examples import boundaries, quickstart


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The demo's models, what it printed, and the folder it wrote to."""
    folder, printed = tmp_path_factory.mktemp("demo"), io.StringIO()
    models = quickstart.main(folder, Console(file=printed, width=200))
    return models, printed.getvalue(), folder


def test_the_demo_reaches_its_three_verdicts(demo):
    """Nothing new, drift and hidden digits are told apart."""
    models, _, _ = demo

    verdicts = [model.assessment_.verdict for model in models.values()]

    assert verdicts == ["no_change", "drift", "unknowns"]


def test_the_demo_finds_the_hidden_digits(demo):
    """Most extracted rows are hidden digits, and the interval of their share holds the truth."""
    models, _, _ = demo
    is_hidden = quickstart.draw_story().windows["hidden digits"].is_hidden
    model = models["hidden digits"]
    low, high = model.assessment_.unknown_rate_interval

    assert is_hidden[model.unknown_indices_].mean() > 0.7
    assert low <= is_hidden.mean() <= high


def test_the_demo_speaks_in_sentences(demo):
    """The finding is a sentence with its figures, and the picture is where it says."""
    _, printed, folder = demo

    assert "of this window belongs to something the model was never taught" in printed
    assert f"Picture: {folder / 'unknowns.png'}" in printed
    assert imread(folder / "unknowns.png").std() > 0.1


def test_the_windows_of_the_demo_are_apart():
    """No row that a window or a score speaks about was trained on."""
    story = quickstart.draw_story()
    seen = {row.tobytes() for row in story.training.X}

    for rows in (story.windows["nothing new"], story.windows["hidden digits"], story.later):
        assert not seen & {row.tobytes() for row in rows.X}
    assert not np.isin(story.training.y, quickstart.HIDDEN).any()


def test_boundaries_are_drawn(tmp_path):
    """Six planes are drawn; those before hold no black region, those after do."""
    path = boundaries.main(tmp_path / "images" / "boundaries.png")

    image = imread(path)[..., :3]
    middle = image.shape[0] // 2
    is_black = (image == 0).all(axis=2)
    assert is_black[middle:].mean() > 0.02
    assert is_black[:middle].mean() < 0.01
