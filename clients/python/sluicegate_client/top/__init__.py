"""The command `sluicegate top`: a running server, live."""
