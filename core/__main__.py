"""``python -m core``, which is what ``sluicegate core`` becomes."""

from core.cli import main

main(prog_name="sluicegate core")
