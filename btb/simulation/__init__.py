"""Modelled replicas and fabric, driven by the same controller as the service."""
