"""The README is checked against the code: what it shows runs, and what there is, it names."""

import re
from dataclasses import fields
from inspect import Parameter, signature
from pathlib import Path

import pytest

from rtscv_mlops import RTSCVClassifier
from rtscv_mlops.rectify import Assessment, Verdict
from rtscv_mlops.rectify.clusters import Cluster

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
TARGETS = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)


def test_the_readme_code_runs(capsys):
    """Each block of Python runs as it stands; together they find the hidden digit."""
    names = {}

    for block in re.findall(r"^```python\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL):
        exec(compile(block, "README.md", "exec"), names)

    assert names["model"].assessment_.verdict == "unknowns"
    assert names["model"].unknown_label_ == 10
    truth = names["y"][names["window"]][names["model"].unknown_indices_]
    assert (truth == 6).mean() > 0.8
    assert capsys.readouterr().out.startswith("About ")


@pytest.mark.parametrize("parameter", signature(RTSCVClassifier).parameters.values(), ids=str)
def test_every_parameter_is_in_the_table(parameter):
    """The table of parameters has each of them, with its default."""
    default = "" if parameter.default is Parameter.empty else f"`{parameter.default!r}` "

    assert f"| `{parameter.name}` | {default}|" in README


@pytest.mark.parametrize("word", [*Verdict, *(field.name for field in fields(Assessment))])
def test_every_fact_is_explained(word):
    """Each verdict and each field of the assessment begins a row of a table."""
    assert f"\n| `{word}` | " in README


@pytest.mark.parametrize("name", [field.name for field in fields(Cluster)])
def test_candidate_classes_are_explained(name):
    """What a candidate class holds is named."""
    assert f"`{name}`" in README


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_is_named(target):
    """A target that nobody can find does not exist."""
    assert f"`make {target}`" in README


def test_every_named_target_exists():
    """No command in the README leads nowhere."""
    assert set(re.findall(r"(?:`|\$ )make ([a-z-]+)", README)) <= set(TARGETS)


def test_the_picture_is_there():
    """The pictures that the README shows are part of the repository."""
    pictures = re.findall(r"!\[.+?\]\((.+?)\)", README)

    assert pictures
    assert all((ROOT / picture).is_file() for picture in pictures)
