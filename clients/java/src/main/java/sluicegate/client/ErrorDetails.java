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
  /** No valid duration is longer, and no sum of it runs over. */
  private static final long TEN_THOUSAND_YEARS_SECONDS = 315_576_000_000L;

  private static final ErrorDetails NONE = new ErrorDetails("", List.of(), null);

  static SluicegateException readable(StatusRuntimeException error) {
    ErrorDetails details = NONE;
    for (Any detail : detailsOf(error)) {
      try {
        details = details.with(detail);
      } catch (InvalidProtocolBufferException malformed) {
        // Of a fault that is told badly, the rest is told all the same.
        error.addSuppressed(malformed);
      }
    }
    return new SluicegateException(error.getStatus().getCode(), message(error.getStatus()), details, error);
  }

  private static List<Any> detailsOf(StatusRuntimeException error) {
    try {
      return StatusProto.fromThrowable(error).getDetailsList();
    } catch (IllegalArgumentException malformed) {
      error.addSuppressed(malformed);
      return List.of();
    }
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
    long seconds = Math.min(retry.getRetryDelay().getSeconds(), TEN_THOUSAND_YEARS_SECONDS);
    Duration delay = Duration.ofSeconds(seconds, retry.getRetryDelay().getNanos());
    return delay.isNegative() ? Duration.ZERO : delay;
  }

  private static String message(Status status) {
    String description = status.getDescription() == null ? status.getCode().name() : status.getDescription();
    // Why no connection is made is in the cause alone: the description is "io exception".
    return status.getCause() == null ? description : description + ": " + status.getCause().getMessage();
  }
}
