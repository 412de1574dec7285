"""Every system of the paper, side by side: `make bench-paper` writes `docs/benchmarks.md`."""
