"""Spans of calls, sent to whoever collects traces."""
