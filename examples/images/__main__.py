"""`make images`, or `python -m examples.images --folder demo/images`."""

from pathlib import Path

from rtscv_mlops.process import prepare_process


def main() -> None:
    """Run the story."""
    prepare_process()  # Vendors read what it sets when they are loaded.
    from examples.images import story
    from examples.stories import run_from_command_line

    run_from_command_line(story.run_story, Path("demo/images"), story.__doc__ or "")


if __name__ == "__main__":
    main()
