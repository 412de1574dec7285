"""The examples in the docstrings of public names run as they are written."""

import doctest
import inspect

import pytest

import rtscv_mlops


def examples():
    """The docstrings of public names, and of their methods, that have examples."""
    public = {name: getattr(rtscv_mlops, name) for name in rtscv_mlops.__all__}
    return [
        test
        for name, thing in public.items()
        if inspect.isclass(thing) or inspect.isfunction(thing)
        for test in doctest.DocTestFinder().find(thing, name)
        if any(not example.options.get(doctest.SKIP) for example in test.examples)
    ]


@pytest.mark.parametrize("test", examples(), ids=lambda test: test.name)
def test_an_example_prints_what_it_shows(test):
    """A user who copies an example gets the output that the docstring shows."""
    report: list[str] = []

    result = doctest.DocTestRunner(verbose=False).run(test, out=report.append)

    assert result.attempted > 0
    assert result.failed == 0, "".join(report)


def test_the_classifier_has_an_example():
    """The estimator's docstring shows how to use it."""
    assert "RTSCVClassifier" in [test.name for test in examples()]
