// Weights as the kernels read them: panels of as many outputs as a register has lanes, one after the other.
//
//   affine   a weight is scale * quant + offset, with a scale and an offset for each group of inputs. A panel is a row of
//            groups: [group / 4 (8 at 4 bits)][lanes][4] bytes, then [lanes] scales, then [lanes] offsets. At 4 bits a
//            byte holds a weight of the first four inputs and, above it, one of the next four. Where every offset is the
//            same multiple of its scale there are none: zero_point says which. Scales are halves where none loses by it.
//   dense    floats, [inputs][kDenseLanes * lanes]
//
// Padding up to a whole panel is zero.
#pragma once

#include <cstdint>

#include "buffer.h"
#include "lanes.h"
#include "quantized_rows.h"
#include "range.h"

namespace sluicegate {

#if defined(__AVX512F__)
constexpr int kDenseLanes = 4;
#else
constexpr int kDenseLanes = 2;
#endif

// Where the result of some rows goes: `values` with `stride` floats from row to row, set to the product plus `bias`
// (by output, may be null), or with the product added.
struct Destination {
    float* values;
    int64_t stride;
    const float* bias;
    bool is_sum;
};

class Matrix {
   public:
    // quants [num_outputs, num_inputs], scales and offsets [num_outputs, num_inputs / group]; group 16 or 32, bits 4 or 8.
    static Matrix affine(const uint8_t* quants, const float* scales, const float* offsets, int num_outputs, int num_inputs,
                         int group, int bits);
    // weights [num_outputs, num_inputs]
    static Matrix dense(const float* weights, int num_outputs, int num_inputs);

    int num_outputs() const { return num_outputs_; }
    int num_inputs() const { return num_inputs_; }
    int num_panels() const { return num_panels_; }
    bool is_dense() const { return bits_ == 32; }
    size_t num_bytes() const { return panels_.num_bytes(); }

    // The products of `panels` with some rows of `rows` or, of a dense matrix, of `values` [rows, num_inputs]. Column 0 of
    // `to` is the matrix's first output. A row's result is the same, to the bit, whatever rows are with it.
    void multiply(Range panels, Range wanted, const QuantizedRows* rows, const float* values, const Destination& to) const;

   private:
    template <int bits, int group, bool has_offsets, typename Scale>
    friend struct AffineKernel;

    int panel_outputs() const { return is_dense() ? kDenseLanes * kLanes : kLanes; }
    int outputs_in(int panel) const;

    int num_outputs_, num_inputs_, num_panels_;
    int bits_ = 32, group_ = 0;
    int zero_point_ = 0;
    bool has_offsets_ = false, has_half_scales_ = false;
    size_t panel_bytes_ = 0;
    Buffer<uint8_t> panels_;
};

}  // namespace sluicegate
