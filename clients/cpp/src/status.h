#pragma once

#include <grpcpp/support/status.h>

#include "sluicegate/error.h"

namespace sluicegate {

// What gRPC says of a failed call, with the details that the server gave.
Error ErrorOf(const grpc::Status& status);

}  // namespace sluicegate
