"""RTSCV as a scikit-learn estimator. Knows arrays, tables and estimators, and no outside world."""
