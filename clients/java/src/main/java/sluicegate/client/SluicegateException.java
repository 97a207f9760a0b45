package sluicegate.client;

import io.grpc.Status;
import java.time.Duration;
import java.util.List;
import java.util.Optional;

/** A call that failed; the cause is gRPC's own exception. */
public final class SluicegateException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  private final Status.Code code;
  private final ErrorDetails details;

  SluicegateException(Status.Code code, String message, ErrorDetails details, Throwable cause) {
    super(message, cause);
    this.code = code;
    this.details = details;
  }

  /** The gRPC status. */
  public Status.Code code() {
    return code;
  }

  /** The server's name for the fault; empty when it is not the server that answers. */
  public String reason() {
    return details.reason();
  }

  /** What is wrong with the request. */
  public List<Violation> violations() {
    return details.violations();
  }

  /**
   * How long to wait before the next try; empty: the server did not say that there should be one; zero: it did, but not
   * when.
   */
  public Optional<Duration> retryAfter() {
    return Optional.ofNullable(details.retryAfter());
  }
}
