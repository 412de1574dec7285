"""Stories, each of which is run by a test too; what takes minutes is run there on fewer rows."""
