"""A fortnight of network traffic: NSL-KDD's test part brings 17 attacks that were never taught.

`python -m examples.intrusion` runs it through the pipeline; docs/story-intrusion.md tells it.
"""
