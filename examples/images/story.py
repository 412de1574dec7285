"""A small network of photographs meets dimmed photographs, house numbers, and both at once.

The network learns the ten classes of CIFAR-10; the house numbers are those of SVHN. Images arrive
as tables of pixels. No label of a window is used, except to say afterwards what is true.
"""

from pathlib import Path

from rich.console import Console

from examples.images.data import (
    HELD_OUT,
    TAUGHT,
    WINDOW,
    Images,
    load,
    make_champion,
    make_windows,
)
from examples.images.network import make_network
from examples.images.picture import draw_story
from examples.stories import (
    CAPTION,
    Judged,
    count_right,
    judge,
    prepare,
    say,
    tabulate,
    tell_what_next,
)


def run_story(
    folder: Path,
    console: Console,
    images: Images | None = None,
    sizes: tuple[int, int, int] = (TAUGHT, HELD_OUT, WINDOW),
) -> list[Judged]:
    """Train the network, judge its windows, and tell what was found beside what is true.

    `sizes` are the photographs taught, held out, and in each window.
    """
    images = images or load()
    taught, held_out, window = sizes
    say(console, f"A network learns {taught} photographs of CIFAR-10; it never saw house numbers.")
    champion = make_champion(images, make_network(), taught, held_out)
    windows = list(make_windows(images, champion, window))
    monitor = prepare(folder, champion, windows)
    judged = judge(monitor, windows, console)
    console.print(tabulate("The windows", judged))
    say(console, CAPTION, "", count_right(judged))
    tell_what_next(folder, monitor, judged, console)
    path = draw_story(monitor, judged, folder / "story-images.png")
    say(
        console,
        f"Picture: {path}",
        f"MLflow: mlflow ui --backend-store-uri sqlite:///{folder}/mlflow.db",
    )
    return judged
