#pragma once

#include <chrono>
#include <functional>
#include <optional>

namespace sluicegate {

class Error;

// A call is made again only when the server said when (Error::retry_after), only before the first message of its
// answer, and only while attempts and time are left.
struct CallOptions {
  std::optional<std::chrono::milliseconds> timeout;  // of the call with all its attempts; none: no deadline
  int max_attempts = 1;
  std::function<void(const Error&)> on_retry;  // called with the refusal before each wait, for a log
};

}  // namespace sluicegate
