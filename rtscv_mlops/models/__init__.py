"""A trained model: how it is checked, loaded, saved and tried, and what it learned from."""
