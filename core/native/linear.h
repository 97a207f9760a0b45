// A linear layer: matrices of the same inputs, their outputs side by side.
#pragma once

#include <memory>
#include <vector>

#include "matrix.h"
#include "pool.h"
#include "quantized_rows.h"

namespace sluicegate {

class Linear {
   public:
    // `bias` has an entry for each output, or none.
    Linear(std::vector<std::shared_ptr<const Matrix>> parts, std::vector<float> bias);

    int num_inputs() const { return num_inputs_; }
    int num_outputs() const { return num_outputs_; }
    // Whether `multiply` reads the rows as bytes, as floats.
    bool reads_quantized() const { return reads_quantized_; }
    bool reads_floats() const { return reads_floats_; }

    // outputs [num_rows, num_outputs] of the rows, in the forms that this layer reads; or the outputs with those added.
    void multiply(Pool&, int num_rows, const QuantizedRows* rows, const float* values, float* outputs, bool is_sum) const;

   private:
    std::vector<std::shared_ptr<const Matrix>> parts_;
    std::vector<float> bias_;
    int num_inputs_, num_outputs_, num_panels_;
    bool reads_quantized_ = false, reads_floats_ = false;
};

}  // namespace sluicegate
