// What Python sees of the kernels: core/native/kernels.py says it in types.
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

// Not destroyed when the process exits: a thread may be computing then.
Pool& pool = *new Pool(1);

void require(bool is_so, const std::string& what) {
    if (!is_so) throw std::invalid_argument(what);
}

// Does `work` while other threads may have the interpreter. At the end of the process Python ends a thread that asks for
// it back, by unwinding its stack: py::gil_scoped_release would not let it through, and abort.
template <typename Work>
void without_interpreter(const Work& work) {
    PyThreadState* state = PyEval_SaveThread();
    try {
        work();
    } catch (const std::exception&) {
        PyEval_RestoreThread(state);
        throw;
    }
    PyEval_RestoreThread(state);
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
    require(num_inputs > 0 && num_inputs % kBlock == 0, "the inputs must be whole blocks of 32");
    require_shape("scales", scales, {num_outputs, num_inputs / group});
    require_shape("offsets", offsets, {num_outputs, num_inputs / group});
    std::shared_ptr<Matrix> matrix;
    without_interpreter([&] {
        matrix = std::make_shared<Matrix>(Matrix::affine(quants.data(), scales.data(), offsets.data(), (int)num_outputs,
                                                         (int)num_inputs, group, bits));
    });
    return matrix;
}

std::shared_ptr<Matrix> pack_dense(const Array<float>& weights) {
    require(weights.ndim() == 2, "weights must have two dimensions");
    std::shared_ptr<Matrix> matrix;
    without_interpreter([&] {
        matrix = std::make_shared<Matrix>(Matrix::dense(weights.data(), (int)weights.shape(0), (int)weights.shape(1)));
    });
    return matrix;
}

std::vector<float> vector_of(const std::optional<Array<float>>& array) {
    return array ? std::vector<float>(array->data(), array->data() + array->size()) : std::vector<float>();
}

std::shared_ptr<Linear> make_linear(const std::vector<std::shared_ptr<Matrix>>& parts, const std::optional<Array<float>>& bias) {
    require(!parts.empty(), "a linear layer must have a matrix");
    int num_outputs = 0;
    for (const auto& part : parts) {
        require(part != nullptr, "a linear layer must have a matrix");
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
    without_interpreter([&] {
        static thread_local QuantizedRows quantized;
        Pool::Session session(pool);
        if (linear.reads_quantized()) {
            quantized.reserve(num_rows, linear.num_inputs());
            quantized.quantize_all(pool, num_rows, values);
        }
        linear.multiply(pool, num_rows, &quantized, values, to, false);
    });
}

// The paged KV cache of all layers: float32, or float16 as uint16.
class PagedCache {
   public:
    PagedCache(const py::list& keys, const py::list& values, std::vector<int> groups, int block_size) : keys_(keys), values_(values) {
        require(keys.size() > 0 && keys.size() == values.size() && keys.size() == groups.size(),
                "keys, values and groups: one for each layer");
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
    int block_size() const { return is_half_ ? half_.block_size : float_.block_size; }
    const std::vector<int>& groups() const { return is_half_ ? half_.groups : float_.groups; }

   private:
    template <typename Element>
    void fill(Cache<Element>& cache, std::vector<int> groups, int block_size) {
        cache.block_size = block_size;
        cache.groups = std::move(groups);
        for (size_t i = 0; i < keys_.size(); ++i) {
            cache.layers.push_back({place_of<Element>(keys_[i]), place_of<Element>(values_[i])});
        }
    }

    // A cast would make a copy of what is of another type.
    template <typename Element>
    static Element* place_of(const py::handle& array) {
        if (!py::isinstance<Array<Element>>(array)) throw py::type_error("keys and values must all be float32, or all uint16");
        return array.cast<Array<Element>>().mutable_data();
    }

    py::list keys_, values_;  // so that the memory stays
    bool is_half_;
    Cache<float> float_;
    Cache<uint16_t> half_;
};

// spans [count, 2]: rows and first position of each; tables[g] [count, blocks]: of each, the blocks of group g.
std::vector<std::vector<Span>> spans_of(const Array<int32_t>& spans, const std::vector<Array<int32_t>>& tables, int64_t num_rows,
                                        int block_size) {
    require(spans.ndim() == 2 && spans.shape(1) == 2, "spans must be [count, 2]");
    std::vector<std::vector<Span>> by_group;
    for (const auto& table : tables) {
        require(table.ndim() == 2 && table.shape(0) == spans.shape(0), "a table must have a row for each span");
        std::vector<Span> own;
        int64_t row = 0;
        for (py::ssize_t i = 0; i < spans.shape(0); ++i) {
            const int count = spans.at(i, 0), start = spans.at(i, 1);
            require(count > 0 && start >= 0, "a span must have rows, from a position on");
            require((int64_t)start + count <= (int64_t)table.shape(1) * block_size, "a table must have a block for each position");
            own.push_back({(int)row, count, start, table.data(i, 0)});
            row += count;
        }
        require(row == num_rows, "the spans must have all rows");
        by_group.push_back(std::move(own));
    }
    return by_group;
}

void forward(Decoder& decoder, Array<float>& hidden, const Array<int32_t>& spans, const std::vector<Array<int32_t>>& tables,
             const PagedCache& cache) {
    require(hidden.ndim() == 2 && hidden.shape(1) == decoder.hidden_size(), "hidden has a wrong shape");
    require(cache.num_layers() == decoder.num_layers(), "the cache must have the decoder's layers");
    for (int group : cache.groups()) require(group >= 0 && (size_t)group < tables.size(), "every group must have a table");
    const int num_rows = (int)hidden.shape(0);
    const auto by_group = spans_of(spans, tables, num_rows, cache.block_size());
    float* rows = hidden.mutable_data();
    without_interpreter([&] {
        if (cache.is_half()) {
            decoder.forward(pool, rows, num_rows, by_group, cache.as_half());
        } else {
            decoder.forward(pool, rows, num_rows, by_group, cache.as_float());
        }
    });
}

Layer make_layer(const std::optional<Array<float>>& attention_norm, const std::optional<Array<float>>& head_norm,
                 const std::optional<Array<float>>& attended_norm, const std::optional<Array<float>>& feed_forward_norm,
                 const std::optional<Array<float>>& fed_norm, std::shared_ptr<Linear> qkv, std::shared_ptr<Linear> output,
                 std::shared_ptr<Linear> gate_up, std::shared_ptr<Linear> down, float scale, float softcap, int window, int rotation) {
    return {vector_of(attention_norm), vector_of(head_norm), vector_of(attended_norm), vector_of(feed_forward_norm),
            vector_of(fed_norm), std::move(qkv), std::move(output), std::move(gate_up), std::move(down),
            {scale, softcap, window}, rotation};
}

void require_norm(const std::vector<float>& norm, int size) {
    require(norm.size() == (size_t)size, "a norm has a wrong shape");
}

void require_linear(const std::shared_ptr<const Linear>& linear, int num_inputs, int num_outputs) {
    require(linear && linear->num_inputs() == num_inputs && linear->num_outputs() == num_outputs, "a linear has a wrong shape");
}

void require_layer(const Layer& layer, const DecoderShape& shape, size_t num_rotations) {
    const int num_turned = shape.num_heads + shape.num_kv_heads, query_size = shape.num_heads * shape.head_size;
    require_norm(layer.attention_norm, shape.hidden_size);
    require_norm(layer.feed_forward_norm, shape.hidden_size);
    if (!layer.head_norm.empty()) require_norm(layer.head_norm, num_turned * shape.head_size);
    if (!layer.attended_norm.empty()) require_norm(layer.attended_norm, shape.hidden_size);
    if (!layer.fed_norm.empty()) require_norm(layer.fed_norm, shape.hidden_size);
    require_linear(layer.qkv, shape.hidden_size, (num_turned + shape.num_kv_heads) * shape.head_size);
    require_linear(layer.output, query_size, shape.hidden_size);
    require_linear(layer.gate_up, shape.hidden_size, 2 * shape.intermediate_size);
    require_linear(layer.down, shape.intermediate_size, shape.hidden_size);
    require(layer.rotation >= 0 && (size_t)layer.rotation < num_rotations, "a layer's rotation is none of the decoder's");
    require(layer.rule.window >= 0, "window must be 0 or more");
}

std::unique_ptr<Decoder> make_decoder(int hidden_size, int intermediate_size, int num_heads, int num_kv_heads, int head_size,
                                      float norm_eps, bool uses_gelu,
                                      const std::vector<std::pair<Array<float>, float>>& rotations, std::vector<Layer> layers,
                                      const Array<float>& norm) {
    const DecoderShape shape{hidden_size, intermediate_size, num_heads, num_kv_heads, head_size, norm_eps, uses_gelu};
    for (int size : {hidden_size, intermediate_size, head_size / 2}) {
        require(size > 0 && size % 16 == 0, "hidden_size, intermediate_size and head_size / 2 must be multiples of 16");
    }
    require(num_kv_heads > 0 && num_heads > 0 && num_heads % num_kv_heads == 0, "num_heads must be a multiple of num_kv_heads");
    std::vector<Rotation> turns;
    for (const auto& [frequencies, scale] : rotations) {
        require_shape("frequencies", frequencies, {head_size / 2});
        turns.push_back({vector_of(frequencies), scale});
    }
    for (const Layer& layer : layers) require_layer(layer, shape, turns.size());
    require_shape("norm", norm, {hidden_size});
    return std::make_unique<Decoder>(shape, std::move(turns), std::move(layers), vector_of(norm));
}

}  // namespace

#define STRING_OF(name) #name
#define EXPANDED_STRING_OF(name) STRING_OF(name)

PYBIND11_MODULE(SLUICEGATE_MODULE, m) {
    m.doc() = "Kernels for " EXPANDED_STRING_OF(SLUICEGATE_MODULE);
    m.def("set_num_threads", [](int count) {
        require(count >= 1, "count must be at least 1");
        without_interpreter([&] { pool.set_num_threads(count); });
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
        .def(py::init(&make_decoder),
             py::kw_only(), py::arg("hidden_size"), py::arg("intermediate_size"), py::arg("num_heads"), py::arg("num_kv_heads"),
             py::arg("head_size"), py::arg("norm_eps"), py::arg("uses_gelu"), py::arg("rotations"), py::arg("layers"),
             py::arg("norm"))
        .def("forward", &forward, py::arg("hidden").noconvert(), py::arg("spans").noconvert(), py::arg("tables"), py::arg("cache"));
}
