"""Names for the contents of full KV blocks, chained so that a name stands for the whole prefix up to its block.

blake2b of 16 bytes: keyed by construction and cryptographic, so no client can craft a prompt that is served another
one's keys and values, and as quick as sha256 (0.7 µs for a block of 16 tokens). Python's own ``hash`` is quicker, but
it has 64 bits and collisions are easy to make.
"""

import hashlib
import secrets
from array import array

from core.prompt_embeds import PromptEmbeds

BlockHash = bytes

HASH_BYTES = 16
SEED_BYTES = 32


def seed_from(text: str | None) -> bytes | None:
    """A seed that is the same wherever ``text`` is. None, for a random one, where that is Python's word for it."""
    return None if text in (None, "", "random") else hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


class BlockHasher:
    """Hashes full blocks of ``block_size`` tokens. Holds no changing state: any thread may use it.

    ``seed`` keys every hash; None = a random one, so that hashes mean nothing outside this process.
    """

    def __init__(self, block_size: int, seed: bytes | None = None) -> None:
        self.block_size = block_size
        key = secrets.token_bytes(SEED_BYTES) if seed is None else seed
        self._root_state = hashlib.blake2b(key=key, digest_size=HASH_BYTES, person=b"root")
        self._block_state = hashlib.blake2b(key=key, digest_size=HASH_BYTES, person=b"block")
        self._embeds_state = hashlib.blake2b(key=key, digest_size=HASH_BYTES, person=b"embeds")

    def root(self, cache_salt: str | None = None, lora_name: str | None = None) -> BlockHash:
        """The parent of a request's first block: requests share blocks only if salt and adapter are the same."""
        state = self._root_state.copy()
        # Tag and length make the pairs unambiguous: a salt "x" is never an adapter "x".
        for tag, value in (("salt", cache_salt), ("lora", lora_name)):
            if value is not None:
                encoded = value.encode("utf-8", "surrogatepass")
                state.update(f"{tag}:{len(encoded)}:".encode() + encoded)
        return state.digest()

    def extend(
        self,
        block_hashes: list[BlockHash],
        root: BlockHash,
        token_ids: list[int],
        embeds: PromptEmbeds | None = None,
    ) -> None:
        """Append to ``block_hashes`` the hash of every full block of ``token_ids`` that has none yet.

        A block that holds rows of ``embeds`` has the hash of no block of tokens alone, nor of one with other rows.
        """
        block_size = self.block_size
        parent = block_hashes[-1] if block_hashes else root
        for start in range(len(block_hashes) * block_size, len(token_ids) - block_size + 1, block_size):
            stop = start + block_size
            rows = embeds.content(start, stop) if embeds is not None else None
            state = (self._block_state if rows is None else self._embeds_state).copy()
            state.update(parent + array("I", token_ids[start:stop]).tobytes())
            if rows is not None:
                state.update(rows)
            parent = state.digest()
            block_hashes.append(parent)
