// Activations as signed bytes, a scale for every 32 of them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "buffer.h"
#include "pool.h"

namespace sluicegate {

constexpr int kBlock = 32;

// How many rows a kernel multiplies together: as many as there are registers for.
#if defined(__AVX512F__)
constexpr int kTileRows = 8;
#else
constexpr int kTileRows = 4;
#endif

// One tile's rows, a block of them: 32 activations are `scale` times their bytes, of which four lie together, then the
// next row's four. What the kernels need besides: the bytes' sum, that of the first 16, and the sum times the scale.
struct Block {
    int8_t bytes[kBlock / 4][kTileRows][4];
    float scales[kTileRows], scaled_sums[kTileRows];
    int32_t sums[kTileRows], first_sums[kTileRows];
};

// Rows whose quantized forms lie together are for one thread to write.
template <typename Work>
void for_rows(Pool& pool, int num_rows, const Work& work) {
    pool.run((num_rows + kTileRows - 1) / kTileRows, [&](int tile) {
        const int last = std::min((tile + 1) * kTileRows, num_rows);
        for (int row = tile * kTileRows; row < last; ++row) work(row);
    });
}

class QuantizedRows {
   public:
    void reserve(int num_rows, int num_columns);

    // scale = largest / 127, byte = nearest(value / scale): as llama.cpp has it (ggml-quants.c, quantize_row_q8_1). With
    // a NaN or an infinity among the 32 the scale is NaN.
    void quantize(int row, const float* values);
    // All rows, of `values` [num_rows, num_columns].
    void quantize_all(Pool&, int num_rows, const float* values);

    // The blocks of the tile that begins with `row`.
    const Block* tile(int row) const { return blocks_.data() + (int64_t)(row / kTileRows) * num_blocks_; }

   private:
    int num_blocks_ = 0;
    Buffer<Block> blocks_;
};

}  // namespace sluicegate
