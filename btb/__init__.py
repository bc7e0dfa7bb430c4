"""Composes forecasting, policies and replication into one product. Nothing imports it."""
