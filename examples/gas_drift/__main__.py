"""`make gas-drift`, or `python -m examples.gas_drift --folder demo/gas-drift`."""

from pathlib import Path

from examples.gas_drift import story
from examples.stories import run_from_command_line


def main() -> None:
    """Run the story."""
    run_from_command_line(story.run_story, Path("demo/gas-drift"), story.__doc__ or "")


if __name__ == "__main__":
    main()
