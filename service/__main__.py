"""`python -m service` is `sluicegate`."""

from service.cli import main

main(prog_name="sluicegate")
