// Memory that begins on a cache line, so that no register of weights lies across two.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace sluicegate {

template <typename Element>
class Buffer {
   public:
    Buffer() = default;
    explicit Buffer(size_t size) { reserve(size); }

    // Room for `size` elements; what was there is lost if it had less.
    void reserve(size_t size) {
        if (size <= capacity_) return;
        elements_.reset(static_cast<Element*>(std::aligned_alloc(kAlignment, rounded_up(size * sizeof(Element)))));
        capacity_ = elements_ ? size : 0;
        if (!elements_) throw std::bad_alloc();
    }
    Element* data() { return elements_.get(); }
    const Element* data() const { return elements_.get(); }
    size_t num_bytes() const { return rounded_up(capacity_ * sizeof(Element)); }

   private:
    static constexpr size_t kAlignment = 64;
    static constexpr size_t rounded_up(size_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }
    struct Free {
        void operator()(Element* elements) const { std::free(elements); }
    };
    std::unique_ptr<Element, Free> elements_;
    size_t capacity_ = 0;
};

}  // namespace sluicegate
