#pragma once

#include <chrono>
#include <functional>
#include <optional>

namespace sluicegate {

class Error;

// A call is made again only when the server asks for it, after the time it asks for (Error::retry_after), only before
// the first message of its answer, and only while attempts and time are left.
struct CallOptions {
  std::optional<std::chrono::milliseconds> timeout;  // of the call with all its attempts; none: no deadline
  int max_attempts = 1;
  // Called before each wait with the refusal and the time, for a log.
  std::function<void(const Error&, std::chrono::milliseconds)> on_wait;
};

}  // namespace sluicegate
