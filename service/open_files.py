"""How many files this process may have open: each connection is one, and each child takes some."""

import logging
import resource

logger = logging.getLogger(__name__)

_ENOUGH = 2**20


def allow_open_files() -> None:
    """Raise the limit as far as one may without privileges; children have it too.

    The usual 1,024 are there for programs that ``select``, and none is here. Beyond it no client can connect, and no
    core can be started in the place of one that is lost.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:
        logger.warning("no more than %d files can be open: %s", soft, error)
