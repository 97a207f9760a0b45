#include "attempts.h"

#include <algorithm>
#include <random>

namespace sluicegate {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstBackoff(200);
// The clock ends somewhere beyond.
constexpr milliseconds kLongestTimeout = std::chrono::hours(24 * 365 * 100);

// Those that were refused together should not come back together.
milliseconds Between(milliseconds least, milliseconds most) {
  thread_local std::mt19937 random{std::random_device{}()};
  return milliseconds(std::uniform_int_distribution<milliseconds::rep>(least.count(), most.count())(random));
}

}  // namespace

Attempts::Attempts(const CallOptions& options) : options_(options) {
  if (options.timeout) deadline_ = Clock::now() + std::min(*options.timeout, kLongestTimeout);
}

void Attempts::SetDeadline(grpc::ClientContext* context) const {
  if (deadline_) context->set_deadline(*deadline_);
}

std::optional<milliseconds> Attempts::WaitAfter(const Error& error) {
  if (++failed_ >= options_.max_attempts) return std::nullopt;
  const auto wait = Wait(error);
  // The server's own word on what is wrong says more than the deadline that would pass during the wait.
  if (!wait || (deadline_ && Clock::now() + *wait >= *deadline_)) return std::nullopt;
  if (options_.on_wait) options_.on_wait(error, *wait);
  return wait;
}

// What the server asks for, or where it does not say when, or there was none, the backoff.
std::optional<milliseconds> Attempts::Wait(const Error& error) const {
  const milliseconds asked = error.retry_after().value_or(milliseconds::zero());
  if (asked > options_.max_wait) return std::nullopt;
  if (asked > milliseconds::zero()) return Between(asked, asked + asked / 10);
  if (!error.retry_after() && error.code() != grpc::UNAVAILABLE) return std::nullopt;
  return Between(Backoff() / 2, Backoff());
}

milliseconds Attempts::Backoff() const {
  return std::min(kFirstBackoff * (1 << std::min(failed_ - 1, 20)), options_.max_wait);
}

}  // namespace sluicegate
