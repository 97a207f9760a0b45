// Attention of one step over the paged KV cache, read where it lies.
//
// Of a layer, Element being float or uint16_t (a half):
//   keys    [blocks, kv_heads, block_size / kLanes, head_size, kLanes]    one lane is one token
//   values  [blocks, kv_heads, block_size, head_size]
// block_size and head_size are multiples of 16.
#pragma once

#include <cstdint>
#include <vector>

#include "pool.h"

namespace sluicegate {

struct AttentionShape {
    int num_heads, num_kv_heads, head_size, block_size;
};

// A score is query times key times `scale`, then softcap * tanh(score / softcap) unless `softcap` is 0. A token sees the
// last `window` tokens of its request, itself included; all of them if that is 0.
struct AttentionRule {
    float scale, softcap;
    int window;
};

// Tokens of one request: `num_rows` rows of the step from `first_row` on, whose positions begin with `start`.
struct Span {
    int first_row, num_rows, start;
    const int32_t* blocks;
};

template <typename Element>
struct LayerCache {
    Element* keys;
    Element* values;
};

// Puts the rows' `keys` and `values`, each [rows, kv_heads * head_size] with `stride` floats from row to row, in their places.
template <typename Element>
void write_cache(Pool&, const AttentionShape&, const LayerCache<Element>&, const std::vector<Span>&, const float* keys,
                 const float* values, int64_t stride);

// attended [rows, num_heads * head_size] of query [rows, num_heads, head_size] with `query_stride` floats from row to row.
// A token's result is the same, to the bit, whichever rows are computed together with it.
template <typename Element>
void attend(Pool&, const AttentionShape&, const AttentionRule&, const LayerCache<Element>&, const std::vector<Span>&,
            const float* query, int64_t query_stride, float* attended);

}  // namespace sluicegate
