#pragma once

#include <grpcpp/support/status_code_enum.h>

#include <cstddef>
#include <iterator>
#include <memory>

#include "sluicegate/v1/inference_service.pb.h"

namespace sluicegate {

// Events of a request as they come: one `started`, then deltas, then one `finished` for each sequence. One thread
// reads; any may cancel. Dropping the stream cancels the call.
class Stream {
 public:
  class Iterator;
  class Impl;

  explicit Stream(std::unique_ptr<Impl> impl);
  Stream(Stream&&) noexcept;
  Stream& operator=(Stream&&) noexcept;
  ~Stream();

  // The next event; false at the end, which is also where a stream ends after Cancel(). Throws Error.
  bool Read(v1::GenerateStreamResponse* event);

  // Ends the call; the server drops the request.
  void Cancel();

  // How the call ended, once Read has returned false: OK or CANCELLED.
  grpc::StatusCode code() const;

  // for (const auto& event : stream)
  Iterator begin();
  Iterator end();

 private:
  std::unique_ptr<Impl> impl_;
};

// An input iterator; going forward reads, and may throw Error.
class Stream::Iterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = v1::GenerateStreamResponse;
  using difference_type = std::ptrdiff_t;
  using pointer = const value_type*;
  using reference = const value_type&;

  Iterator() = default;
  explicit Iterator(Stream* stream) : stream_(stream) { ++*this; }

  reference operator*() const { return event_; }
  pointer operator->() const { return &event_; }
  Iterator& operator++() {
    if (!stream_->Read(&event_)) stream_ = nullptr;
    return *this;
  }
  void operator++(int) { ++*this; }
  friend bool operator==(const Iterator& a, const Iterator& b) { return a.stream_ == b.stream_; }
  friend bool operator!=(const Iterator& a, const Iterator& b) { return !(a == b); }

 private:
  Stream* stream_ = nullptr;  // null: at the end
  value_type event_;
};

inline Stream::Iterator Stream::begin() { return Iterator(this); }
inline Stream::Iterator Stream::end() { return Iterator(); }

}  // namespace sluicegate
