#include "attempts.h"

namespace sluicegate {

Attempts::Attempts(const CallOptions& options) : left_(options.max_attempts), on_retry_(options.on_retry) {
  if (options.timeout) deadline_ = Clock::now() + *options.timeout;
}

void Attempts::SetDeadline(grpc::ClientContext* context) const {
  if (deadline_) context->set_deadline(*deadline_);
}

std::optional<std::chrono::milliseconds> Attempts::WaitAfter(const Error& error) {
  const auto wait = error.retry_after();
  if (--left_ <= 0 || !wait) return std::nullopt;
  // The server's own word on what is wrong says more than the deadline that would pass during the wait.
  if (deadline_ && Clock::now() + *wait >= *deadline_) return std::nullopt;
  if (on_retry_) on_retry_(error);
  return wait;
}

}  // namespace sluicegate
