"""Programs that run inside a peer's environment: they see that environment's packages, and of ours only this folder."""
