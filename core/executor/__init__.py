"""Executors: whatever runs the model for the busy loop, behind one interface."""
