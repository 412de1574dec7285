"""What a run costs, in ratios that are measured side by side: `make bench`."""
