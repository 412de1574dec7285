"""From rows to facts: what a window is compared with, and what that shows."""
