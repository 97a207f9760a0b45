#pragma once

#include <chrono>
#include <functional>
#include <optional>

namespace sluicegate {

class Error;

// A call is made again when the server asks for it (Error::retry_after) or none was reached (UNAVAILABLE), only before
// the first message of its answer, and only while attempts and time are left.
struct CallOptions {
  std::optional<std::chrono::milliseconds> timeout;  // of the call with all its attempts; none: no deadline
  int max_attempts = 1;
  std::chrono::milliseconds max_wait = std::chrono::seconds(30);  // who asks for a longer wait is not waited for
  // Called before each wait with the failure and the time, for a log.
  std::function<void(const Error&, std::chrono::milliseconds)> on_wait;
};

}  // namespace sluicegate
