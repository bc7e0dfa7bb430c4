"""The parts of `benchmarks/replication.py`."""
