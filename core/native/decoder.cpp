#include "decoder.h"

#include <algorithm>
#include <cmath>

#include "lanes.h"

namespace sluicegate {

namespace {

// value * weight / sqrt(mean of the squares + eps). `size` is a multiple of the lanes.
void normalize_row(const float* row, const float* weight, int size, float eps, float* to) {
    Lanes squares = Lanes::zero();
    for (int i = 0; i < size; i += kLanes) squares = Lanes::load(row + i).times_plus(Lanes::load(row + i), squares);
    const Lanes factor = Lanes::all(1.0f / std::sqrt(squares.sum() / (float)size + eps));
    for (int i = 0; i < size; i += kLanes) (Lanes::load(row + i) * factor * Lanes::load(weight + i)).store(to + i);
}

Lanes silu(Lanes x) { return x / (exponential(Lanes::zero() - x) + Lanes::all(1.0f)); }

// The approximation by tanh: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
Lanes gelu(Lanes x) {
    const Lanes inner = (x * x * x).times_plus(Lanes::all(0.044715f), x) * Lanes::all(0.7978845608f);
    return x * Lanes::all(0.5f) * (hyperbolic_tangent(inner) + Lanes::all(1.0f));
}

template <typename Activation>
void activate_row(const float* gate, const float* up, int size, float* to, const Activation& activation) {
    for (int i = 0; i < size; i += kLanes) (activation(Lanes::load(gate + i)) * Lanes::load(up + i)).store(to + i);
}

}  // namespace

Decoder::Decoder(DecoderShape shape, std::vector<Rotation> rotations, std::vector<Layer> layers, std::vector<float> norm)
    : shape_(shape),
      rotations_(std::move(rotations)),
      layers_(std::move(layers)),
      norm_(std::move(norm)),
      qkv_size_((shape.num_heads + 2 * shape.num_kv_heads) * shape.head_size) {}

template <typename Element>
void Decoder::forward(Pool& pool, float* hidden, int num_rows, const std::vector<std::vector<Span>>& spans,
                      const Cache<Element>& cache) {
    const AttentionShape shape{shape_.num_heads, shape_.num_kv_heads, shape_.head_size, cache.block_size};
    const int64_t query_size = (int64_t)shape_.num_heads * shape_.head_size, kv_size = (int64_t)shape_.num_kv_heads * shape_.head_size;
    Pool::Session session(pool);
    reserve(num_rows);
    find_angles(pool, num_rows, spans[0]);
    for (size_t index = 0; index < layers_.size(); ++index) {
        const Layer& layer = layers_[index];
        const std::vector<Span>& own_spans = spans[cache.groups[index]];
        normalize(pool, hidden, num_rows, layer.attention_norm, *layer.qkv);
        layer.qkv->multiply(pool, num_rows, &quantized_, values_.data(), qkv_.data(), false);
        turn_heads(pool, num_rows, layer);
        const float *query = qkv_.data(), *key = query + query_size, *value = key + kv_size;
        write_cache(pool, shape, cache.layers[index], own_spans, key, value, qkv_size_);
        attend(pool, shape, layer.rule, cache.layers[index], own_spans, query, qkv_size_, values_.data());
        quantize(pool, values_.data(), num_rows, *layer.output);
        add(pool, *layer.output, num_rows, layer.attended_norm, hidden);
        normalize(pool, hidden, num_rows, layer.feed_forward_norm, *layer.gate_up);
        layer.gate_up->multiply(pool, num_rows, &quantized_, values_.data(), gate_up_.data(), false);
        activate(pool, num_rows, *layer.down);
        add(pool, *layer.down, num_rows, layer.fed_norm, hidden);
    }
    for_rows(pool, num_rows, [&](int row) {
        float* own = hidden + (int64_t)row * shape_.hidden_size;
        normalize_row(own, norm_.data(), shape_.hidden_size, shape_.norm_eps, own);
    });
}

void Decoder::reserve(int num_rows) {
    const size_t rows = num_rows;
    const int query_size = shape_.num_heads * shape_.head_size;
    values_.reserve(rows * std::max({shape_.hidden_size, query_size, shape_.intermediate_size}));
    qkv_.reserve(rows * qkv_size_);
    gate_up_.reserve(rows * 2 * shape_.intermediate_size);
    added_.reserve(rows * shape_.hidden_size);
    angles_.reserve(rows * rotations_.size() * shape_.head_size);
}

// For every rotation and row the cosines [head_size / 2], then the sines.
void Decoder::find_angles(Pool& pool, int num_rows, const std::vector<Span>& spans) {
    const int half = shape_.head_size / 2;
    std::vector<int> positions;
    for (const Span& span : spans) {
        for (int i = 0; i < span.num_rows; ++i) positions.push_back(span.start + i);
    }
    for (size_t r = 0; r < rotations_.size(); ++r) {
        const Rotation& rotation = rotations_[r];
        for_rows(pool, num_rows, [&](int row) {
            float* cosines = angles_.data() + ((int64_t)r * num_rows + row) * shape_.head_size;
            for (int i = 0; i < half; ++i) {
                const float angle = (float)positions[row] * rotation.frequencies[i];
                cosines[i] = std::cos(angle) * rotation.scale;
                cosines[half + i] = std::sin(angle) * rotation.scale;
            }
        });
    }
}

// The rows of `hidden`, normalized, as `reader` reads them.
void Decoder::normalize(Pool& pool, const float* hidden, int num_rows, const std::vector<float>& norm, const Linear& reader) {
    const int size = shape_.hidden_size;
    if (reader.reads_quantized()) quantized_.reserve(num_rows, size);
    for_rows(pool, num_rows, [&](int row) {
        float* own = values_.data() + (int64_t)row * size;
        normalize_row(hidden + (int64_t)row * size, norm.data(), size, shape_.norm_eps, own);
        if (reader.reads_quantized()) quantized_.quantize(row, own);
    });
}

void Decoder::quantize(Pool& pool, const float* values, int num_rows, const Linear& reader) {
    if (!reader.reads_quantized()) return;
    quantized_.reserve(num_rows, reader.num_inputs());
    quantized_.quantize_all(pool, num_rows, values);
}

// Norms, then rotary positions, of queries and keys; a head's halves are turned against each other.
void Decoder::turn_heads(Pool& pool, int num_rows, const Layer& layer) {
    const int half = shape_.head_size / 2;
    for_rows(pool, num_rows, [&](int row) {
        const float* cosines = angles_.data() + ((int64_t)layer.rotation * num_rows + row) * shape_.head_size;
        float* head = qkv_.data() + (int64_t)row * qkv_size_;
        for (int h = 0; h < shape_.num_heads + shape_.num_kv_heads; ++h, head += shape_.head_size) {
            if (!layer.head_norm.empty()) {
                normalize_row(head, layer.head_norm.data() + h * shape_.head_size, shape_.head_size, shape_.norm_eps, head);
            }
            for (int i = 0; i < half; i += kLanes) {
                const Lanes cosine = Lanes::load(cosines + i), sine = Lanes::load(cosines + half + i);
                const Lanes low = Lanes::load(head + i), high = Lanes::load(head + half + i);
                (low * cosine - high * sine).store(head + i);
                (high * cosine + low * sine).store(head + half + i);
            }
        }
    });
}

void Decoder::activate(Pool& pool, int num_rows, const Linear& reader) {
    const int size = shape_.intermediate_size;
    if (reader.reads_quantized()) quantized_.reserve(num_rows, size);
    for_rows(pool, num_rows, [&](int row) {
        const float *gate = gate_up_.data() + (int64_t)row * 2 * size, *up = gate + size;
        float* own = values_.data() + (int64_t)row * size;
        shape_.uses_gelu ? activate_row(gate, up, size, own, gelu) : activate_row(gate, up, size, own, silu);
        if (reader.reads_quantized()) quantized_.quantize(row, own);
    });
}

// Adds what `linear` makes of the rows it reads, normalized if there is a norm.
void Decoder::add(Pool& pool, const Linear& linear, int num_rows, const std::vector<float>& norm, float* hidden) {
    if (norm.empty()) return linear.multiply(pool, num_rows, &quantized_, values_.data(), hidden, true);
    linear.multiply(pool, num_rows, &quantized_, values_.data(), added_.data(), false);
    const int size = shape_.hidden_size;
    for_rows(pool, num_rows, [&](int row) {
        float *own = added_.data() + (int64_t)row * size, *sum = hidden + (int64_t)row * size;
        normalize_row(own, norm.data(), size, shape_.norm_eps, own);
        for (int i = 0; i < size; i += kLanes) (Lanes::load(sum + i) + Lanes::load(own + i)).store(sum + i);
    });
}

template void Decoder::forward<float>(Pool&, float*, int, const std::vector<std::vector<Span>>&, const Cache<float>&);
template void Decoder::forward<uint16_t>(Pool&, float*, int, const std::vector<std::vector<Span>>&, const Cache<uint16_t>&);

}  // namespace sluicegate
