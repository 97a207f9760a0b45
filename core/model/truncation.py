"""min_p, top_k and top_p: which tokens stay possible.

Each row gets a threshold on its own logits, and tokens that tie with it all stay: nothing depends on the order in
which a sort leaves equals, nor on the other rows.
"""

import torch
from torch import Tensor

_FIRST_CANDIDATES = 256


def mask_min_p(logits: Tensor, min_p: Tensor) -> Tensor:
    """Drop tokens less probable than ``min_p`` [rows] times the most probable one; 0 drops none."""
    return _mask_below(logits, logits.amax(-1) + min_p.log())


def mask_top_k(logits: Tensor, top_k: Tensor) -> Tensor:
    """Keep each row's ``top_k`` int64 [rows] most probable tokens; 0 keeps all."""
    best = logits.topk(int(top_k.max()), -1).values
    kth_best = best.gather(1, (top_k[:, None] - 1).clamp_min(0))[:, 0]
    return _mask_below(logits, kth_best.masked_fill(top_k == 0, -torch.inf))


def mask_top_p(logits: Tensor, top_p: Tensor) -> Tensor:
    """Keep the fewest most probable tokens whose probabilities sum to ``top_p`` [rows] or more.

    A full sort costs as much as the model, so it looks at a few hundred candidates first, and at more if some row
    needs more.
    """
    vocab_size = logits.shape[1]
    total = logits.logsumexp(-1, keepdim=True)
    num_candidates = min(_FIRST_CANDIDATES, vocab_size)
    while True:
        best = logits.topk(num_candidates, -1).values
        sums = (best - total).exp().cumsum(-1)
        last_kept = (sums < top_p[:, None]).sum(-1)
        if num_candidates == vocab_size or int(last_kept.max()) < num_candidates:
            threshold = best.gather(1, last_kept.clamp_max(num_candidates - 1)[:, None])[:, 0]
            return _mask_below(logits, threshold.masked_fill(top_p >= 1, -torch.inf))
        num_candidates = min(8 * num_candidates, vocab_size)


def _mask_below(logits: Tensor, threshold: Tensor) -> Tensor:
    return logits.masked_fill(logits < threshold[:, None], -torch.inf)
