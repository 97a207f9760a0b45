"""Why a model cannot be had."""


class ModelError(Exception):
    """The message says what was looked for, where, and what could be given instead."""
