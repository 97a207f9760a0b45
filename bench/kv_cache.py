"""What one request's keys and values take, with windows and as if every layer saw all: ``python -m bench.kv_cache``.

Counted in blocks as the engine hands them out, at the end of a prefill in chunks and while it decodes.
"""

from pathlib import Path

import click

from core.config import CacheConfig, SchedulerConfig
from core.kv_group import KVGroup
from core.model.attention.kv_layout import KVLayout
from core.model.weights.open_weights import open_weights

_CONTEXTS = (512, 1024, 2048, 4096, 8192, 16384, 32768)


@click.command()
@click.argument("model", type=click.Path(path_type=Path, exists=True))
@click.option("--element-bytes", default=4, help="Of the model's dtype.")
def main(model: Path, element_bytes: int) -> None:
    """For MODEL, a folder or a GGUF file."""
    shape = open_weights(model).architecture
    layout = KVLayout(shape.windows, shape.max_model_len)
    block_size, budget = CacheConfig.block_size, SchedulerConfig.max_num_batched_tokens
    groups = [KVGroup(index, window, block_size, budget) for index, window in enumerate(layout.windows)]
    layer_bytes = block_size * 2 * shape.kv_size * element_bytes
    click.echo(f"{layout}: blocks of {block_size} tokens, {layout.group_size * layer_bytes} bytes")
    click.echo("context  prefill MiB  decode MiB  without windows MiB  bytes per token, decoding  without windows")
    for context in _CONTEXTS:
        if context <= shape.max_model_len:
            prefill = sum(group.max_held(context) for group in groups) * layout.group_size * layer_bytes
            decode = sum(_held(group, context) for group in groups) * layout.group_size * layer_bytes
            whole = -(-context // block_size) * shape.num_layers * layer_bytes
            sizes = " ".join(f"{size / 2**20:11.1f}" for size in (prefill, decode, whole))
            click.echo(f"{context:7} {sizes} {decode / context:26.0f} {whole / context:16.0f}")


def _held(group: KVGroup, num_tokens: int) -> int:
    return group.table_length(num_tokens, num_tokens - 1) - group.first_seen(num_tokens - 1)


if __name__ == "__main__":
    main()
