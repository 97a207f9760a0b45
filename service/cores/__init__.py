"""The cores as the gateway knows them: their processes, sockets, loads, losses, and what goes on after these."""
