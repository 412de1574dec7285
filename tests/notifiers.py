"""A notifier of Airflow for tests: it writes to a file what it is told."""

from pathlib import Path
from typing import Any

from airflow.sdk import BaseNotifier


class FileNotifier(BaseNotifier):
    """Adds a line to a file for each alert."""

    template_fields = ("text",)

    def __init__(self, path: str, text: str) -> None:
        super().__init__()
        self.path, self.text = path, text

    def notify(self, context: Any) -> None:
        with Path(self.path).open("a") as file:
            file.write(f"{self.text}\n")
