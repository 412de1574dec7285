"""The catalogue of bad inputs, by part: what is put in, and the outcome that it must have."""

import pytest

pytest.register_assert_rewrite(
    "tests.catalogue.bench", *(f"tests.catalogue.part_{letter}" for letter in "abcdef")
)
