"""The systems that RTSCV is compared with, and what a user would reach for today.

Knows scikit-learn, scipy and PyOD; knows nothing of windows' sources, MLflow or Airflow.
"""

from rtscv_mlops.peers.base import UNKNOWN, Detector
from rtscv_mlops.peers.catalogue import PEERS, Peer

__all__ = ["PEERS", "UNKNOWN", "Detector", "Peer"]
