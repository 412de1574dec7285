"""`make images`, or `python -m examples.images --folder demo/images`."""

from pathlib import Path

from examples.images import story
from examples.stories import run_from_command_line


def main() -> None:
    """Run the story."""
    run_from_command_line(story.run_story, Path("demo/images"), story.__doc__ or "")


if __name__ == "__main__":
    main()
