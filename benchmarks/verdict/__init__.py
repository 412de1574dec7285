"""Can the verdict be trusted? Five measurements on real data; see `__main__`."""
