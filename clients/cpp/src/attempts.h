#pragma once

#include <grpcpp/client_context.h>

#include <chrono>
#include <optional>

#include "sluicegate/call_options.h"
#include "sluicegate/error.h"

namespace sluicegate {

// The attempts of one call: how many are left, and until when.
class Attempts {
 public:
  explicit Attempts(const CallOptions& options);

  // Sets the deadline of the next attempt: one for all of them.
  void SetDeadline(grpc::ClientContext* context) const;

  // How long to wait before the next attempt; none: `error` stands.
  std::optional<std::chrono::milliseconds> WaitAfter(const Error& error);

 private:
  using Clock = std::chrono::system_clock;

  std::optional<std::chrono::milliseconds> Wait(const Error& error) const;
  std::chrono::milliseconds Backoff() const;

  CallOptions options_;
  std::optional<Clock::time_point> deadline_;
  int failed_ = 0;
};

}  // namespace sluicegate
