"""Arrivals in, forecasts out."""
