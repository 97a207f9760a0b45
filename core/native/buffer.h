// Memory that begins on a cache line, so that no register of weights lies across two; of several MB, on huge pages if the
// system has some to give, so that what is read in order is fetched ahead across the borders of small ones.
#pragma once

#include <sys/mman.h>

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
        const size_t alignment = size * sizeof(Element) < kHugePage ? kCacheLine : kHugePage;
        const size_t num_bytes = (size * sizeof(Element) + alignment - 1) / alignment * alignment;
        elements_.reset(static_cast<Element*>(std::aligned_alloc(alignment, num_bytes)));
        capacity_ = elements_ ? size : 0;
        if (!elements_) throw std::bad_alloc();
        if (alignment == kHugePage) madvise(elements_.get(), num_bytes, MADV_HUGEPAGE);
    }
    Element* data() { return elements_.get(); }
    const Element* data() const { return elements_.get(); }
    size_t num_bytes() const { return capacity_ * sizeof(Element); }

   private:
    static constexpr size_t kCacheLine = 64, kHugePage = 2 << 20;
    struct Free {
        void operator()(Element* elements) const { std::free(elements); }
    };
    std::unique_ptr<Element, Free> elements_;
    size_t capacity_ = 0;
};

}  // namespace sluicegate
