#include "linear.h"

#include <algorithm>

namespace sluicegate {

namespace {

// As many rows as stay in a core's second cache beside a panel, and a multiple of every number that is computed together.
constexpr int kRowsOfAnItem = 96;
// Enough that no thread waits long for another's last item, and few enough that taking them costs nothing.
constexpr int kItemsOfAThread = 4;

}  // namespace

Linear::Linear(std::vector<std::shared_ptr<const Matrix>> parts, std::vector<float> bias)
    : parts_(std::move(parts)), bias_(std::move(bias)), num_inputs_(parts_.at(0)->num_inputs()), num_outputs_(0), num_panels_(0) {
    for (const auto& part : parts_) {
        num_outputs_ += part->num_outputs();
        num_panels_ += part->num_panels();
        (part->is_dense() ? reads_floats_ : reads_quantized_) = true;
    }
}

void Linear::multiply(Pool& pool, int num_rows, const QuantizedRows* rows, const float* values, float* outputs,
                      bool is_sum) const {
    if (num_rows == 0) return;
    const int num_row_blocks = (num_rows + kRowsOfAnItem - 1) / kRowsOfAnItem;
    const int num_wanted = std::max(1, pool.num_threads() * kItemsOfAThread / num_row_blocks);
    const int num_strips = std::min(num_panels_, num_wanted);
    pool.run(num_row_blocks * num_strips, [&](int item) {
        const int first = item / num_strips * kRowsOfAnItem, strip = item % num_strips;
        const Range wanted{first, std::min(first + kRowsOfAnItem, num_rows)};
        int begin = (int)((int64_t)num_panels_ * strip / num_strips);
        int end = (int)((int64_t)num_panels_ * (strip + 1) / num_strips);
        int column = 0;
        for (const auto& part : parts_) {
            const Destination to{outputs + column, num_outputs_, bias_.empty() ? nullptr : bias_.data() + column, is_sum};
            const Range panels{std::max(begin, 0), std::min(end, part->num_panels())};
            part->multiply(panels, wanted, rows, values, to);
            column += part->num_outputs();
            begin -= part->num_panels();
            end -= part->num_panels();
        }
    });
}

}  // namespace sluicegate
