"""What people do around the stages: set up, check, score, look back, purge."""
