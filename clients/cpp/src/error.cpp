#include "sluicegate/error.h"

#include <algorithm>
#include <cstdint>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "status.h"

namespace sluicegate {
namespace {

std::chrono::milliseconds Delay(const google::protobuf::Duration& duration) {
  // No valid duration is longer, and no sum of it runs over.
  constexpr std::int64_t kTenThousandYears = 315'576'000'000;
  const std::chrono::seconds seconds(std::clamp<std::int64_t>(duration.seconds(), 0, kTenThousandYears));
  return seconds + std::chrono::milliseconds(std::max(duration.nanos(), 0) / 1'000'000);
}

void Add(const google::protobuf::Any& detail, ErrorDetails* details) {
  google::rpc::ErrorInfo info;
  google::rpc::BadRequest bad_request;
  google::rpc::RetryInfo retry;
  if (detail.UnpackTo(&info)) {
    details->reason = info.reason();
  } else if (detail.UnpackTo(&bad_request)) {
    for (const auto& each : bad_request.field_violations()) {
      details->violations.push_back({each.field(), each.description()});
    }
  } else if (detail.UnpackTo(&retry)) {
    details->retry_after = Delay(retry.retry_delay());
  }
}

}  // namespace

Error ErrorOf(const grpc::Status& status) {
  ErrorDetails details;
  google::rpc::Status rich;
  if (rich.ParseFromString(status.error_details())) {
    for (const auto& detail : rich.details()) Add(detail, &details);
  }
  return Error(status.error_code(), status.error_message(), std::move(details));
}

const char* CodeName(grpc::StatusCode code) {
  static const char* const names[] = {  // by number
      "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
      "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
      "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"};
  return code >= grpc::OK && code <= grpc::UNAUTHENTICATED ? names[code] : "UNKNOWN";
}

}  // namespace sluicegate
