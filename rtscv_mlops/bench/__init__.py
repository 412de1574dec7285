"""The benchmark: hide known classes, let every detector search for them, compare."""
