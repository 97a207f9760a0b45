"""A gateway of several processes, which share its port and its cores.

                 SO_REUSEPORT: the kernel gives each connection to one of them
    clients ──▶ ┌ primary   FrontEnd 0 ◀──▶ ┐
            ──▶ │ worker 1  FrontEnd 1 ◀──▶ ├ cores: an input and an output socket for each front end
            ──▶ └ worker 2  FrontEnd 2 ◀──▶ ┘
    operators ▶   primary ── Channel ──▶ each worker

    primary   supervises cores and workers; admin, metrics, handshake; ``team.Team`` speaks for the workers
    worker    ``worker.Worker``: a front end that is told what to do; a stream lives and ends in one process

Either notices the death of the other by the end of the channel, the worker by its lifeline too.
"""
