#include "quantized_rows.h"

#include "lanes.h"

namespace sluicegate {

namespace {

// Half of a block; returns the sum of its bytes.
int32_t quantize_half(const float* values, Lanes inverse, int8_t* bytes) {
    int32_t sum = 0;
    for (int i = 0; i < kBlock / 2; i += kLanes) sum += (Lanes::load(values + i) * inverse).store_bytes(bytes + i);
    return sum;
}

void quantize_block(const float* values, Block& block, int r) {
    Lanes magnitude = Lanes::zero();
    for (int i = 0; i < kBlock; i += kLanes) magnitude = magnitude.max_or_nan(Lanes::load(values + i).absolute());
    const float largest = magnitude.largest_or_nan();
    const Lanes inverse = Lanes::all(largest > 0.0f ? 127.0f / largest : 0.0f);
    int8_t bytes[kBlock];
    block.first_sums[r] = quantize_half(values, inverse, bytes);
    block.sums[r] = block.first_sums[r] + quantize_half(values + kBlock / 2, inverse, bytes + kBlock / 2);
    for (int i = 0; i < kBlock / 4; ++i) std::memcpy(block.bytes[i][r], bytes + i * 4, 4);
    block.scales[r] = largest * (1.0f / 127.0f) + (largest - largest);  // of an infinity NaN, too
    block.scaled_sums[r] = block.scales[r] * (float)block.sums[r];
}

}  // namespace

void QuantizedRows::reserve(int num_rows, int num_columns) {
    num_blocks_ = num_columns / kBlock;
    blocks_.reserve((size_t)((num_rows + kTileRows - 1) / kTileRows) * num_blocks_);
}

void QuantizedRows::quantize(int row, const float* values) {
    Block* blocks = blocks_.data() + (int64_t)(row / kTileRows) * num_blocks_;
    for (int i = 0; i < num_blocks_; ++i) quantize_block(values + i * kBlock, blocks[i], row % kTileRows);
}

void QuantizedRows::quantize_all(Pool& pool, int num_rows, const float* values) {
    for_rows(pool, num_rows, [&](int row) { quantize(row, values + (int64_t)row * num_blocks_ * kBlock); });
}

}  // namespace sluicegate
