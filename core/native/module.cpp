// What Python sees of the kernels: core/native/kernels.pyi says it in types.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "decoder.h"
#include "linear.h"
#include "matrix.h"
#include "pool.h"

namespace py = pybind11;
using namespace sluicegate;

namespace {

template <typename Element>
using Array = py::array_t<Element, py::array::c_style>;

Pool pool(1);

void require(bool is_so, const std::string& what) {
    if (!is_so) throw std::invalid_argument(what);
}

template <typename Element>
void require_shape(const char* name, const Array<Element>& array, std::vector<py::ssize_t> shape) {
    bool fits = array.ndim() == (py::ssize_t)shape.size();
    for (size_t i = 0; fits && i < shape.size(); ++i) fits = array.shape((py::ssize_t)i) == shape[i];
    require(fits, std::string(name) + " has a wrong shape");
}

std::shared_ptr<Matrix> pack_affine(const Array<uint8_t>& quants, const Array<float>& scales, const Array<float>& offsets,
                                    int group, int bits) {
    require(quants.ndim() == 2, "quants must have two dimensions");
    require(bits == 4 || bits == 8, "bits must be 4 or 8");
    require(group == 16 || group == 32, "group must be 16 or 32");
    const py::ssize_t num_outputs = quants.shape(0), num_inputs = quants.shape(1);
    require(num_inputs % kBlock == 0, "the inputs must be whole blocks of 32");
    require_shape("scales", scales, {num_outputs, num_inputs / group});
    require_shape("offsets", offsets, {num_outputs, num_inputs / group});
    py::gil_scoped_release release;
    return std::make_shared<Matrix>(Matrix::affine(quants.data(), scales.data(), offsets.data(), (int)num_outputs,
                                                   (int)num_inputs, group, bits));
}

std::shared_ptr<Matrix> pack_dense(const Array<float>& weights) {
    require(weights.ndim() == 2, "weights must have two dimensions");
    py::gil_scoped_release release;
    return std::make_shared<Matrix>(Matrix::dense(weights.data(), (int)weights.shape(0), (int)weights.shape(1)));
}

std::vector<float> vector_of(const std::optional<Array<float>>& array) {
    return array ? std::vector<float>(array->data(), array->data() + array->size()) : std::vector<float>();
}

std::shared_ptr<Linear> make_linear(const std::vector<std::shared_ptr<Matrix>>& parts, const std::optional<Array<float>>& bias) {
    require(!parts.empty(), "a linear layer must have a matrix");
    int num_outputs = 0;
    for (const auto& part : parts) {
        require(part->num_inputs() == parts[0]->num_inputs(), "the matrices must have the same inputs");
        num_outputs += part->num_outputs();
    }
    if (bias) require_shape("bias", *bias, {num_outputs});
    return std::make_shared<Linear>(std::vector<std::shared_ptr<const Matrix>>(parts.begin(), parts.end()), vector_of(bias));
}

void multiply(const Linear& linear, const Array<float>& rows, Array<float>& outputs) {
    require(rows.ndim() == 2 && rows.shape(1) == linear.num_inputs(), "rows has a wrong shape");
    require_shape("outputs", outputs, {rows.shape(0), linear.num_outputs()});
    const int num_rows = (int)rows.shape(0);
    const float* values = rows.data();
    float* to = outputs.mutable_data();
    py::gil_scoped_release release;
    static thread_local QuantizedRows quantized;
    Pool::Session session(pool);
    if (linear.reads_quantized()) {
        quantized.reserve(num_rows, linear.num_inputs());
        quantized.quantize_all(pool, num_rows, values);
    }
    linear.multiply(pool, num_rows, &quantized, values, to, false);
}

// The paged KV cache of all layers: float32, or float16 as uint16.
class PagedCache {
   public:
    PagedCache(const py::list& keys, const py::list& values, std::vector<int> groups, int block_size) : keys_(keys), values_(values) {
        require(keys.size() == values.size() && keys.size() == groups.size(), "keys, values and groups: one for each layer");
        require(block_size > 0 && block_size % 16 == 0, "block_size must be a multiple of 16");
        is_half_ = py::isinstance<Array<uint16_t>>(keys[0]);
        if (is_half_) {
            fill(half_, std::move(groups), block_size);
        } else {
            fill(float_, std::move(groups), block_size);
        }
    }

    bool is_half() const { return is_half_; }
    const Cache<float>& as_float() const { return float_; }
    const Cache<uint16_t>& as_half() const { return half_; }
    size_t num_layers() const { return keys_.size(); }

   private:
    template <typename Element>
    void fill(Cache<Element>& cache, std::vector<int> groups, int block_size) {
        cache.block_size = block_size;
        cache.groups = std::move(groups);
        for (size_t i = 0; i < keys_.size(); ++i) {
            cache.layers.push_back({keys_[i].cast<Array<Element>>().mutable_data(), values_[i].cast<Array<Element>>().mutable_data()});
        }
    }

    py::list keys_, values_;  // so that the memory stays
    bool is_half_;
    Cache<float> float_;
    Cache<uint16_t> half_;
};

// spans [count, 2]: rows and first position of each; tables[g] [count, blocks]: of each, the blocks of group g.
std::vector<std::vector<Span>> spans_of(const Array<int32_t>& spans, const std::vector<Array<int32_t>>& tables, int num_rows) {
    require(spans.ndim() == 2 && spans.shape(1) == 2, "spans must be [count, 2]");
    std::vector<std::vector<Span>> by_group;
    for (const auto& table : tables) {
        require(table.ndim() == 2 && table.shape(0) == spans.shape(0), "a table must have a row for each span");
        std::vector<Span> own;
        int row = 0;
        for (py::ssize_t i = 0; i < spans.shape(0); ++i) {
            own.push_back({row, spans.at(i, 0), spans.at(i, 1), table.data(i, 0)});
            row += spans.at(i, 0);
        }
        require(row == num_rows, "the spans must have all rows");
        by_group.push_back(std::move(own));
    }
    return by_group;
}

void forward(Decoder& decoder, Array<float>& hidden, const Array<int32_t>& spans, const std::vector<Array<int32_t>>& tables,
             const PagedCache& cache) {
    require(hidden.ndim() == 2, "hidden must have two dimensions");
    const int num_rows = (int)hidden.shape(0);
    const auto by_group = spans_of(spans, tables, num_rows);
    float* rows = hidden.mutable_data();
    py::gil_scoped_release release;
    if (cache.is_half()) {
        decoder.forward(pool, rows, num_rows, by_group, cache.as_half());
    } else {
        decoder.forward(pool, rows, num_rows, by_group, cache.as_float());
    }
}

Layer make_layer(const std::optional<Array<float>>& attention_norm, const std::optional<Array<float>>& head_norm,
                 const std::optional<Array<float>>& attended_norm, const std::optional<Array<float>>& feed_forward_norm,
                 const std::optional<Array<float>>& fed_norm, std::shared_ptr<Linear> qkv, std::shared_ptr<Linear> output,
                 std::shared_ptr<Linear> gate_up, std::shared_ptr<Linear> down, float scale, float softcap, int window, int rotation) {
    return {vector_of(attention_norm), vector_of(head_norm), vector_of(attended_norm), vector_of(feed_forward_norm),
            vector_of(fed_norm), std::move(qkv), std::move(output), std::move(gate_up), std::move(down),
            {scale, softcap, window}, rotation};
}

}  // namespace

#define STRING_OF(name) #name
#define EXPANDED_STRING_OF(name) STRING_OF(name)

PYBIND11_MODULE(SLUICEGATE_MODULE, m) {
    m.doc() = "Kernels for " EXPANDED_STRING_OF(SLUICEGATE_MODULE);
    m.def("set_num_threads", [](int count) {
        require(count >= 1, "count must be at least 1");
        py::gil_scoped_release release;
        pool.set_num_threads(count);
    }, py::arg("count"));
    m.def("num_threads", [] { return pool.num_threads(); });
    m.def("pack_affine", &pack_affine, py::arg("quants").noconvert(), py::arg("scales").noconvert(),
          py::arg("offsets").noconvert(), py::arg("group"), py::arg("bits"));
    m.def("pack_dense", &pack_dense, py::arg("weights").noconvert());
    py::class_<Matrix, std::shared_ptr<Matrix>>(m, "Matrix", py::module_local())
        .def_property_readonly("num_outputs", &Matrix::num_outputs)
        .def_property_readonly("num_inputs", &Matrix::num_inputs)
        .def_property_readonly("num_bytes", &Matrix::num_bytes);
    py::class_<Linear, std::shared_ptr<Linear>>(m, "Linear", py::module_local())
        .def(py::init(&make_linear), py::arg("parts"), py::arg("bias").noconvert() = py::none())
        .def_property_readonly("num_outputs", &Linear::num_outputs)
        .def_property_readonly("num_inputs", &Linear::num_inputs)
        .def("multiply", &multiply, py::arg("rows").noconvert(), py::arg("outputs").noconvert());
    py::class_<PagedCache>(m, "PagedCache", py::module_local())
        .def(py::init<const py::list&, const py::list&, std::vector<int>, int>(), py::arg("keys"), py::arg("values"),
             py::arg("groups"), py::arg("block_size"));
    py::class_<Layer>(m, "Layer", py::module_local())
        .def(py::init(&make_layer), py::kw_only(), py::arg("attention_norm"), py::arg("head_norm"), py::arg("attended_norm"),
             py::arg("feed_forward_norm"), py::arg("fed_norm"), py::arg("qkv"), py::arg("output"), py::arg("gate_up"),
             py::arg("down"), py::arg("scale"), py::arg("softcap"), py::arg("window"), py::arg("rotation"));
    py::class_<Decoder>(m, "Decoder", py::module_local())
        .def(py::init([](int hidden_size, int intermediate_size, int num_heads, int num_kv_heads, int head_size, float norm_eps,
                         bool uses_gelu, const std::vector<std::pair<Array<float>, float>>& rotations,
                         std::vector<Layer> layers, const Array<float>& norm) {
                 std::vector<Rotation> turns;
                 for (const auto& [frequencies, scale] : rotations) turns.push_back({vector_of(frequencies), scale});
                 DecoderShape shape{hidden_size, intermediate_size, num_heads, num_kv_heads, head_size, norm_eps, uses_gelu};
                 return std::make_unique<Decoder>(shape, std::move(turns), std::move(layers), vector_of(norm));
             }),
             py::kw_only(), py::arg("hidden_size"), py::arg("intermediate_size"), py::arg("num_heads"), py::arg("num_kv_heads"),
             py::arg("head_size"), py::arg("norm_eps"), py::arg("uses_gelu"), py::arg("rotations"), py::arg("layers"),
             py::arg("norm"))
        .def("forward", &forward, py::arg("hidden").noconvert(), py::arg("spans").noconvert(), py::arg("tables"), py::arg("cache"));
}
