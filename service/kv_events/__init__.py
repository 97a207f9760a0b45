"""What enters and leaves the prefix caches of the cores, followed, kept in mind, and told to whoever subscribes.

    core r ──PUB──▶ EventSockets ──▶ RankFollower ──▶ RankEvents ──▶ Subscription ──▶ a servicer's stream
           ◀─asks── (missed some)      in order         known blocks      bounded
           ──tells─▶

Everything runs on the event loop. Only ``event_sockets`` touches zmq.
"""
