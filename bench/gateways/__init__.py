"""Gateways side by side, each before a core without a model: ``python -m bench.gateways --help``."""
