#pragma once

#include <grpcpp/support/status_code_enum.h>

#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace sluicegate {

// One thing wrong with a request.
struct Violation {
  std::string field;        // path of the field, as the proto spells it, such as sampling_params.top_p
  std::string description;  // what is wrong with it, with the bound
};

// What the server says about a call that failed.
struct ErrorDetails {
  std::string reason;                                    // its name for the fault; empty: the server did not answer
  std::vector<Violation> violations;                     // what is wrong with the request
  // How long to wait before the next try; none: it does not say that there should be one; 0: it does, but not when.
  std::optional<std::chrono::milliseconds> retry_after;
};

// A call that failed; what() is the message.
class Error : public std::runtime_error {
 public:
  Error(grpc::StatusCode code, const std::string& message, ErrorDetails details)
      : std::runtime_error(message), code_(code), details_(std::move(details)) {}

  grpc::StatusCode code() const { return code_; }
  const std::string& reason() const { return details_.reason; }
  const std::vector<Violation>& violations() const { return details_.violations; }
  std::optional<std::chrono::milliseconds> retry_after() const { return details_.retry_after; }

 private:
  grpc::StatusCode code_;
  ErrorDetails details_;
};

// The code as gRPC writes it, such as "RESOURCE_EXHAUSTED".
const char* CodeName(grpc::StatusCode code);

}  // namespace sluicegate
