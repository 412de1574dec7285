"""Measurements that the documentation rests on; each prints its protocol."""
