"""Stories that run in seconds and download nothing; each is run by a test too."""
