package sluicegate.client;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.BadRequest;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RetryInfo;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import java.io.Serializable;
import java.time.Duration;
import java.util.List;

/** What the server says about a call that failed; {@code retryAfter} is null when it does not say. */
record ErrorDetails(String reason, List<Violation> violations, Duration retryAfter) implements Serializable {
  private static final ErrorDetails NONE = new ErrorDetails("", List.of(), null);

  static SluicegateException readable(StatusRuntimeException error) {
    ErrorDetails details = NONE;
    try {
      for (Any detail : StatusProto.fromThrowable(error).getDetailsList()) {
        details = details.with(detail);
      }
    } catch (InvalidProtocolBufferException malformed) {
      error.addSuppressed(malformed);
    }
    return new SluicegateException(error.getStatus().getCode(), message(error.getStatus()), details, error);
  }

  private ErrorDetails with(Any detail) throws InvalidProtocolBufferException {
    if (detail.is(ErrorInfo.class)) {
      return new ErrorDetails(detail.unpack(ErrorInfo.class).getReason(), violations, retryAfter);
    }
    if (detail.is(BadRequest.class)) {
      return new ErrorDetails(reason, violations(detail.unpack(BadRequest.class)), retryAfter);
    }
    if (detail.is(RetryInfo.class)) {
      return new ErrorDetails(reason, violations, delay(detail.unpack(RetryInfo.class)));
    }
    return this;
  }

  private static List<Violation> violations(BadRequest request) {
    return request.getFieldViolationsList().stream()
        .map(each -> new Violation(each.getField(), each.getDescription()))
        .toList();
  }

  private static Duration delay(RetryInfo retry) {
    return Duration.ofSeconds(retry.getRetryDelay().getSeconds(), retry.getRetryDelay().getNanos());
  }

  private static String message(Status status) {
    String description = status.getDescription() == null ? status.getCode().name() : status.getDescription();
    // Why no connection is made is in the cause alone: the description is "io exception".
    return status.getCause() == null ? description : description + ": " + status.getCause().getMessage();
  }
}
