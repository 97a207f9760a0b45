"""Programs that run inside an environment of ``bench.peers``: of ours they see only this folder."""
