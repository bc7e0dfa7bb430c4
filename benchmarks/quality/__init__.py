"""The rows of `forecast_quality.py`, a module each."""
