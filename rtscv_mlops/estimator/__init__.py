"""RTSCV as a scikit-learn estimator. Works on arrays, tables and estimators only."""
