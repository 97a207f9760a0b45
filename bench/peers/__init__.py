"""Inference engines side by side on one machine, model and load."""
