#include "sluicegate/error.h"

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "status.h"

namespace sluicegate {
namespace {

std::chrono::milliseconds Milliseconds(const google::protobuf::Duration& duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::seconds(duration.seconds()) +
                                                               std::chrono::nanoseconds(duration.nanos()));
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
  } else if (detail.UnpackTo(&retry) && retry.has_retry_delay()) {
    details->retry_after = Milliseconds(retry.retry_delay());
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
