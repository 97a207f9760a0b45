// A decoder's layers over one step's rows, from inputs to normalized hidden states, without a return to Python.
#pragma once

#include <memory>
#include <vector>

#include "attention.h"
#include "linear.h"
#include "pool.h"

namespace sluicegate {

// The numbers of core.model.architecture.Architecture.
struct DecoderShape {
    int hidden_size, intermediate_size, num_heads, num_kv_heads, head_size;
    float norm_eps;
    bool uses_gelu;  // with tanh; SiLU otherwise
};

// What turns the heads of some layers: their frequencies [head_size / 2], and what cosine and sine are multiplied by.
struct Rotation {
    std::vector<float> frequencies;
    float scale;
};

// Weights of norms are empty where the layer has no such norm. head_norm [num_heads + num_kv_heads, head_size].
struct Layer {
    std::vector<float> attention_norm, head_norm, attended_norm, feed_forward_norm, fed_norm;
    std::shared_ptr<const Linear> qkv, output, gate_up, down;
    AttentionRule rule;
    int rotation;
};

// Of all layers. `groups[layer]` says by which of a span's block tables a layer's blocks are found.
template <typename Element>
struct Cache {
    int block_size;
    std::vector<LayerCache<Element>> layers;
    std::vector<int> groups;
};

class Decoder {
   public:
    Decoder(DecoderShape shape, std::vector<Rotation> rotations, std::vector<Layer> layers, std::vector<float> norm);

    int hidden_size() const { return shape_.hidden_size; }
    size_t num_layers() const { return layers_.size(); }

    // `hidden` [num_rows, hidden_size]: inputs become normalized hidden states. `spans[g]`: the rows, in order, with the
    // blocks of group g. A row's result is the same, to the bit, whichever rows are computed together with it.
    template <typename Element>
    void forward(Pool&, float* hidden, int num_rows, const std::vector<std::vector<Span>>& spans, const Cache<Element>&);

   private:
    void reserve(int num_rows);
    void find_angles(Pool&, int num_rows, const std::vector<Span>& spans);
    void normalize(Pool&, const float* hidden, int num_rows, const std::vector<float>& norm, const Linear& reader);
    void quantize(Pool&, const float* values, int num_rows, const Linear& reader);
    void turn_heads(Pool&, int num_rows, const Layer&);
    void activate(Pool&, int num_rows, const Linear& reader);
    void add(Pool&, const Linear&, int num_rows, const std::vector<float>& norm, float* hidden);

    DecoderShape shape_;
    std::vector<Rotation> rotations_;
    std::vector<Layer> layers_;
    std::vector<float> norm_;
    int qkv_size_;
    // Of the step at hand. What a linear reads is in `quantized_`, or in `values_`, or in both.
    QuantizedRows quantized_;
    Buffer<float> values_, qkv_, gate_up_, added_, angles_;
};

}  // namespace sluicegate
