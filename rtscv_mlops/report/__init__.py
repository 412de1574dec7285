"""The report of one window, and the drift figures in it, made with Evidently."""
