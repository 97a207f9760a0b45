#include "attempts.h"

#include <random>

namespace sluicegate {
namespace {

// Those that were refused together should not come back together.
std::chrono::milliseconds ALittleLonger(std::chrono::milliseconds wait) {
  thread_local std::mt19937 random{std::random_device{}()};
  const double factor = std::uniform_real_distribution<>(1.0, 1.1)(random);
  return std::chrono::duration_cast<std::chrono::milliseconds>(wait * factor);
}

}  // namespace

Attempts::Attempts(const CallOptions& options) : left_(options.max_attempts), on_wait_(options.on_wait) {
  if (options.timeout) deadline_ = Clock::now() + *options.timeout;
}

void Attempts::SetDeadline(grpc::ClientContext* context) const {
  if (deadline_) context->set_deadline(*deadline_);
}

std::optional<std::chrono::milliseconds> Attempts::WaitAfter(const Error& error) {
  if (--left_ <= 0 || !error.retry_after()) return std::nullopt;
  const auto wait = ALittleLonger(*error.retry_after());
  // The server's own word on what is wrong says more than the deadline that would pass during the wait.
  if (deadline_ && Clock::now() + wait >= *deadline_) return std::nullopt;
  if (on_wait_) on_wait_(error, wait);
  return wait;
}

}  // namespace sluicegate
