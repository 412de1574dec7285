"""What the how-to shows can be copied: settings exist, and code is code."""

import re
from pathlib import Path

import pytest

from rtscv_mlops.config import load_monitor

PAGE = (Path(__file__).parents[1] / "docs" / "how-to.md").read_text()
REST = {
    "model": "model:\n  name: wine\n",
    "source": "source:\n  path: served/\n  timestamp: served_at\n",
}
"""What a monitor needs besides, where a snippet does not say it."""


def blocks(kind):
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("snippet", blocks("yaml"))
def test_settings_make_a_monitor(tmp_path, snippet):
    """Each snippet, with a model and a source, is a monitor without mistakes."""
    rest = [text for name, text in REST.items() if f"{name}:\n" not in snippet]
    file = tmp_path / "wine.yaml"
    file.write_text("".join([*rest, snippet]))

    assert load_monitor(file).name == "wine"


@pytest.mark.parametrize("snippet", blocks("python"))
def test_code_can_be_compiled(snippet):
    """No snippet of Python has a slip of the pen."""
    compile(snippet, "how-to", "exec")
