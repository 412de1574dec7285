"""`make faults`: what the monitor promises when things go wrong, each promise tried many times."""
