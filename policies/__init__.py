"""Forecast and cluster in, decision out: no I/O, no clock, no randomness of its own."""
