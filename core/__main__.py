"""``python -m core``."""

from core.cli import main

main()
