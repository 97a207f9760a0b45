#include "quantized_rows.h"

#include "lanes.h"

namespace sluicegate {

namespace {

int32_t sum_of(const int8_t* bytes, int count) {
    int32_t sum = 0;
    for (int i = 0; i < count; ++i) sum += bytes[i];
    return sum;
}

void quantize_block(const float* values, Block& block, int r) {
    Lanes largest = Lanes::zero(), nothing = Lanes::zero();
    for (int i = 0; i < kBlock; i += kLanes) {
        Lanes some = Lanes::load(values + i);
        largest = largest.max(some.absolute());
        nothing = some.times_plus(Lanes::zero(), nothing);  // NaN once there is anything that is no number
    }
    const float scale = largest.largest() / 127.0f;
    const Lanes inverse = Lanes::all(scale > 0.0f ? 1.0f / scale : 0.0f);
    int8_t bytes[kBlock];
    for (int i = 0; i < kBlock; i += kLanes) (Lanes::load(values + i) * inverse).store_bytes(bytes + i);
    for (int i = 0; i < kBlock / 4; ++i) std::memcpy(block.bytes[i][r], bytes + i * 4, 4);
    block.scales[r] = scale + nothing.sum();
    block.first_sums[r] = sum_of(bytes, kBlock / 2);
    block.sums[r] = block.first_sums[r] + sum_of(bytes + kBlock / 2, kBlock / 2);
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

}  // namespace sluicegate
