"""How the end of a core shows, and that what it has said last is read first."""

from dataclasses import dataclass, field

import pytest

from service.cores.engine import Engine
from service.cores.last_words import LastWords
from tests.service.fake_core import READY


@dataclass
class Cores:
    """Two of them, connected, and what befalls them."""

    num_speakers: int = 2
    events: list[str] = field(default_factory=list)
    engines: list[Engine] = field(default_factory=lambda: [Engine(0), Engine(1)])

    def __post_init__(self) -> None:
        for engine in self.engines:
            engine.introduce(READY, connection=engine.rank)

    def read_outputs_to_end(self) -> None:
        self.events.append("read")

    def lose(self, rank: int, reason: str) -> None:
        self.events.append(f"{rank}: {reason}")
        self.engines[rank].lose(reason, is_awaited=False)

    def ask(self, engine: Engine) -> None:
        self.events.append(f"asked {engine.rank}")


@pytest.fixture
def cores() -> Cores:
    return Cores()


@pytest.fixture
async def last_words(cores: Cores) -> LastWords:
    return LastWords(cores.engines, cores, cores.lose, cores.ask)


async def test_last_words_come_first(cores: Cores, last_words: LastWords) -> None:
    """A core that is gone is lost when its last connection has ended and is read to its end; once."""
    last_words.lose_after(cores.engines[0], "it ended")
    last_words.lose_after(cores.engines[0], "its connection is closed")
    assert cores.events == []
    cores.num_speakers = 1
    last_words.end_if_heard()
    assert cores.events == ["read", "0: it ended"]
    last_words.end_if_heard()
    assert cores.events == ["read", "0: it ended"]


async def test_notice_without_a_name(cores: Cores, last_words: LastWords) -> None:
    """All are asked; who is heard after it did not send it, so the other one is the dead one."""
    last_words.note_death()
    assert cores.events == ["asked 0", "asked 1"]
    assert last_words.has_unnamed_death
    last_words.note_heard(cores.engines[1])
    assert cores.events[2:] == ["0: it reported a fatal error"]
    last_words.note_lost(cores.engines[0])
    assert not last_words.has_unnamed_death


async def test_notice_of_the_only_one_left(cores: Cores, last_words: LastWords) -> None:
    """There is nobody else whom it could be of."""
    cores.lose(0, "gone")
    last_words.note_death()
    assert cores.events[1:] == ["1: it reported a fatal error"]
