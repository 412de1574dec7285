"""Rows in: windows, training data and labels from files, object stores and databases."""
