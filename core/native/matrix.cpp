#include "matrix.h"

#include <algorithm>

namespace sluicegate {

namespace {

constexpr int kDenseRows = 6;
constexpr size_t kPanelBytesTogether = 24 << 10;  // of a first cache of 32 KiB or more

uint16_t half_of(float value) { return (uint16_t)_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT); }

bool are_halves(const float* values, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        if (_cvtsh_ss(half_of(values[i])) != values[i]) return false;
    }
    return true;
}

// The quant that means zero, if all groups have the same; -1 if not.
int common_zero_point(const float* scales, const float* offsets, size_t count) {
    for (int zero_point : {4, 8, 16, 32, 128}) {
        size_t i = 0;
        while (i < count && offsets[i] == -(float)zero_point * scales[i]) ++i;
        if (i == count) return zero_point;
    }
    return -1;
}

void put(uint8_t* at, int lane, float value, float) { std::memcpy(at + lane * sizeof value, &value, sizeof value); }

void put(uint8_t* at, int lane, float value, uint16_t) {
    uint16_t half = half_of(value);
    std::memcpy(at + lane * sizeof half, &half, sizeof half);
}

void put(const Destination& to, int row, int column, int count, Lanes result) {
    float* at = to.values + row * to.stride + column;
    if (count >= kLanes) {
        if (to.bias) result = result + Lanes::load(to.bias + column);
        (to.is_sum ? Lanes::load(at) + result : result).store(at);
    } else {
        if (to.bias) result = result + Lanes::load_first(to.bias + column, count);
        (to.is_sum ? Lanes::load_first(at, count) + result : result).store_first(at, count);
    }
}

// Calls multiply<rows>(row) for all rows, `most` at a time as long as there are so many.
template <int most, typename Multiply>
void tile(Range rows, const Multiply& multiply) {
    for (; rows.first + most <= rows.end; rows.first += most) multiply.template operator()<most>(rows.first);
    if constexpr (most > 1) tile<most - 1>(rows, multiply);
}

}  // namespace

template <int bits, int group, bool has_offsets, typename Scale>
struct AffineKernel {
    static constexpr int kInputsOfARegister = bits == 4 ? 8 : 4;
    static constexpr size_t kQuantBytes = (size_t)group * kLanes * bits / 8;
    static constexpr size_t kScaleBytes = kLanes * sizeof(Scale);
    static constexpr size_t kGroupBytes = kQuantBytes + kScaleBytes * (1 + has_offsets);

    static void pack(Matrix& matrix, const uint8_t* quants, const float* scales, const float* offsets) {
        const int num_groups = matrix.num_inputs_ / group;
        for (int output = 0; output < matrix.num_outputs_; ++output) {
            uint8_t* at = matrix.panels_.data() + output / kLanes * matrix.panel_bytes_;
            for (int g = 0; g < num_groups; ++g, at += kGroupBytes) {
                pack_group(at, output % kLanes, quants + (int64_t)output * matrix.num_inputs_ + g * group);
                put(at + kQuantBytes, output % kLanes, scales[(int64_t)output * num_groups + g], Scale());
                if constexpr (has_offsets) {
                    put(at + kQuantBytes + kScaleBytes, output % kLanes, offsets[(int64_t)output * num_groups + g], Scale());
                }
            }
        }
    }

    static void pack_group(uint8_t* at, int lane, const uint8_t* quants) {
        for (int input = 0; input < group; ++input) {
            const int part = input % kInputsOfARegister;
            uint8_t* byte = at + input / kInputsOfARegister * 4 * kLanes + lane * 4 + part % 4;
            *byte |= (uint8_t)(quants[input] << (part >= 4 ? 4 : 0));
        }
    }

    template <int num_rows>
    static void multiply(const Matrix& matrix, int panel, int first, const QuantizedRows& rows, const Destination& to) {
        Lanes sums[num_rows];
        for (int r = 0; r < num_rows; ++r) sums[r] = Lanes::zero();
        const uint8_t* at = matrix.panels_.data() + panel * matrix.panel_bytes_;
        const Block* block = rows.tile(first);
        for (int i = 0; i < matrix.num_inputs_ / kBlock; ++i, ++block) {
            for (int input = 0; input < kBlock; input += group, at += kGroupBytes) {
                add_group<num_rows>(at, *block, input, matrix.zero_point_, sums);
            }
        }
        const int column = panel * kLanes;
        for (int r = 0; r < num_rows; ++r) put(to, first + r, column, matrix.outputs_in(panel), sums[r]);
    }

    // What the group at `at` makes of the activations of `block` from `input` on.
    template <int num_rows>
    static void add_group(const uint8_t* at, const Block& block, int input, int zero_point, Lanes* sums) {
        Dot<bits> dots[num_rows];
        for (int r = 0; r < num_rows; ++r) {
            const int32_t sum = sum_of(block, input, r);
            dots[r].start(Dot<bits>::correction(sum) - (has_offsets ? 0 : zero_point * sum));
        }
        for (int i = 0; i < group; i += kInputsOfARegister) {
            const auto& activations = block.bytes;
            const int place = (input + i) / 4;
            Bytes stored = Bytes::load(at + i / kInputsOfARegister * 4 * kLanes);
            if constexpr (bits == 4) {
                Bytes low = stored.low_nibbles(), high = stored.high_nibbles();
                for (int r = 0; r < num_rows; ++r) dots[r].add(low, activations[place][r]);
                for (int r = 0; r < num_rows; ++r) dots[r].add(high, activations[place + 1][r]);
            } else {
                for (int r = 0; r < num_rows; ++r) dots[r].add(stored, activations[place][r]);
            }
        }
        const Lanes scales = Lanes::load((const Scale*)(at + kQuantBytes));
        for (int r = 0; r < num_rows; ++r) {
            sums[r] = (dots[r].result() * Lanes::all(block.scales[r])).times_plus(scales, sums[r]);
        }
        if constexpr (has_offsets) {
            const Lanes offsets = Lanes::load((const Scale*)(at + kQuantBytes + kScaleBytes));
            for (int r = 0; r < num_rows; ++r) {
                sums[r] = Lanes::all(scaled_sum_of(block, input, r)).times_plus(offsets, sums[r]);
            }
        }
    }

    // Of the activations that the group at `input` meets.
    static int32_t sum_of(const Block& block, int input, int r) {
        if constexpr (group == kBlock) return block.sums[r];
        return input ? block.sums[r] - block.first_sums[r] : block.first_sums[r];
    }

    static float scaled_sum_of(const Block& block, int input, int r) {
        if constexpr (group == kBlock) return block.scaled_sums[r];
        return block.scales[r] * (float)sum_of(block, input, r);
    }

    // A few panels stay in the first cache while all rows pass by, and so does a tile of rows beside them.
    static void multiply_all(const Matrix& matrix, Range panels, Range wanted, const QuantizedRows& rows, const Destination& to) {
        const int num_together = std::max<int>(1, kPanelBytesTogether / matrix.panel_bytes_);
        for (int first = panels.first; first < panels.end; first += num_together) {
            const int last = std::min(first + num_together, panels.end);
            tile<kTileRows>(wanted, [&]<int num_rows>(int row) {
                for (int panel = first; panel < last; ++panel) multiply<num_rows>(matrix, panel, row, rows, to);
            });
        }
    }
};

namespace {

template <int num_rows>
void multiply_dense(const float* weights, int num_inputs, int column, int count, int first, const float* values,
                    const Destination& to) {
    Lanes sums[num_rows][kDenseLanes];
    const float* inputs[num_rows];
    for (int r = 0; r < num_rows; ++r) {
        inputs[r] = values + (int64_t)(first + r) * num_inputs;
        for (int i = 0; i < kDenseLanes; ++i) sums[r][i] = Lanes::zero();
    }
    for (int input = 0; input < num_inputs; ++input, weights += kDenseLanes * kLanes) {
        Lanes some[kDenseLanes];
        for (int i = 0; i < kDenseLanes; ++i) some[i] = Lanes::load(weights + i * kLanes);
        for (int r = 0; r < num_rows; ++r) {
            const Lanes value = Lanes::all(inputs[r][input]);
            for (int i = 0; i < kDenseLanes; ++i) sums[r][i] = value.times_plus(some[i], sums[r][i]);
        }
    }
    for (int r = 0; r < num_rows; ++r) {
        for (int i = 0; i < kDenseLanes && i * kLanes < count; ++i) {
            put(to, first + r, column + i * kLanes, count - i * kLanes, sums[r][i]);
        }
    }
}

// Calls use.operator()<Kernel>() for the kernel of the format.
template <typename Use>
void with_kernel(int bits, int group, bool has_offsets, bool has_half_scales, const Use& use) {
    auto with_scale = [&]<int b, int g, bool offsets>() {
        has_half_scales ? use.template operator()<AffineKernel<b, g, offsets, uint16_t>>()
                        : use.template operator()<AffineKernel<b, g, offsets, float>>();
    };
    auto with_offsets = [&]<int b, int g>() {
        has_offsets ? with_scale.template operator()<b, g, true>() : with_scale.template operator()<b, g, false>();
    };
    if (bits == 4) return with_offsets.template operator()<4, 32>();
    group == 32 ? with_offsets.template operator()<8, 32>() : with_offsets.template operator()<8, 16>();
}

}  // namespace

int Matrix::outputs_in(int panel) const { return std::min(panel_outputs(), num_outputs_ - panel * panel_outputs()); }

Matrix Matrix::affine(const uint8_t* quants, const float* scales, const float* offsets, int num_outputs, int num_inputs,
                      int group, int bits) {
    const size_t num_groups = (size_t)num_outputs * (num_inputs / group);
    Matrix matrix;
    matrix.num_outputs_ = num_outputs;
    matrix.num_inputs_ = num_inputs;
    matrix.num_panels_ = (num_outputs + kLanes - 1) / kLanes;
    matrix.group_ = group;
    matrix.bits_ = group == 32 ? bits : 8;
    matrix.zero_point_ = common_zero_point(scales, offsets, num_groups);
    matrix.has_offsets_ = matrix.zero_point_ < 0;
    matrix.has_half_scales_ =
        are_halves(scales, num_groups) && (!matrix.has_offsets_ || are_halves(offsets, num_groups));
    with_kernel(matrix.bits_, group, matrix.has_offsets_, matrix.has_half_scales_, [&]<typename Kernel>() {
        matrix.panel_bytes_ = num_inputs / group * Kernel::kGroupBytes;
        const size_t num_bytes = matrix.num_panels_ * matrix.panel_bytes_;
        matrix.panels_.reserve(num_bytes);
        std::memset(matrix.panels_.data(), 0, num_bytes);
        Kernel::pack(matrix, quants, scales, offsets);
    });
    return matrix;
}

Matrix Matrix::dense(const float* weights, int num_outputs, int num_inputs) {
    constexpr int kOutputs = kDenseLanes * kLanes;
    Matrix matrix;
    matrix.num_outputs_ = num_outputs;
    matrix.num_inputs_ = num_inputs;
    matrix.num_panels_ = (num_outputs + kOutputs - 1) / kOutputs;
    matrix.panel_bytes_ = (size_t)num_inputs * kOutputs * sizeof(float);
    matrix.panels_.reserve(matrix.num_panels_ * matrix.panel_bytes_);
    std::memset(matrix.panels_.data(), 0, matrix.num_panels_ * matrix.panel_bytes_);
    float* panels = (float*)matrix.panels_.data();
    for (int panel = 0; panel < matrix.num_panels_; ++panel) {
        const float* from = weights + (int64_t)panel * kOutputs * num_inputs;
        float* to = panels + (int64_t)panel * kOutputs * num_inputs;
        for (int input = 0; input < num_inputs; ++input) {
            for (int i = 0; i < matrix.outputs_in(panel); ++i) to[input * kOutputs + i] = from[(int64_t)i * num_inputs + input];
        }
    }
    return matrix;
}

void Matrix::multiply(Range panels, Range wanted, const QuantizedRows* rows, const float* values,
                      const Destination& to) const {
    if (!is_dense()) {
        return with_kernel(bits_, group_, has_offsets_, has_half_scales_,
                           [&]<typename Kernel>() { Kernel::multiply_all(*this, panels, wanted, *rows, to); });
    }
    for (int panel = panels.first; panel < panels.end; ++panel) {
        const float* weights = (const float*)(panels_.data() + panel * panel_bytes_);
        tile<kDenseRows>(wanted, [&]<int num_rows>(int row) {
            multiply_dense<num_rows>(weights, num_inputs_, panel * panel_outputs(), outputs_in(panel), row, values, to);
        });
    }
}

}  // namespace sluicegate
