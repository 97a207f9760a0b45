#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>

#include "attempts.h"
#include "sluicegate/stream.h"
#include "sluicegate/v1/inference_service.grpc.pb.h"

namespace sluicegate {

using Reader = grpc::ClientReader<v1::GenerateStreamResponse>;

// The call behind a Stream, and the calls that come after it as long as the server refuses.
class Stream::Impl {
 public:
  using Start = std::function<std::unique_ptr<Reader>(grpc::ClientContext*)>;

  // `start` makes the call.
  Impl(Start start, const CallOptions& options);
  ~Impl();

  bool Read(v1::GenerateStreamResponse* event);
  void Cancel();
  grpc::StatusCode code() const { return code_; }

 private:
  void StartAttempt();
  void Recover(const Error& error);
  void Pause(std::chrono::milliseconds wait);

  Start start_;
  Attempts attempts_;
  std::mutex mutex_;  // of context_, and of waiting for cancelled_
  std::condition_variable cancelling_;
  std::atomic<bool> cancelled_ = false;
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<Reader> reader_;  // null: the call has ended
  bool answered_ = false;
  bool finished_ = false;  // the latest event was a `finished`, as the last one is
  grpc::StatusCode code_ = grpc::OK;
};

}  // namespace sluicegate
