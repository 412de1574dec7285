"""Can the verdict be trusted? Measurements on real data; see `__main__`."""
