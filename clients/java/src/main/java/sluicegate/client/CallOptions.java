package sluicegate.client;

import java.time.Duration;
import java.util.Optional;
import java.util.function.Consumer;

/**
 * How to make a call. It is made again only when the server said when ({@link SluicegateException#retryAfter}), only
 * before the first message of its answer, and only while attempts and time are left.
 *
 * @param timeout of the call with all its attempts; empty: no deadline
 * @param maxAttempts at least 1
 * @param onRetry called with the refusal before each wait, for a log
 */
public record CallOptions(Optional<Duration> timeout, int maxAttempts, Consumer<SluicegateException> onRetry) {
  /** One attempt, without a deadline. */
  public static final CallOptions DEFAULT = new CallOptions(Optional.empty(), 1, refusal -> {});

  public CallOptions withTimeout(Duration timeout) {
    return new CallOptions(Optional.of(timeout), maxAttempts, onRetry);
  }

  public CallOptions withMaxAttempts(int maxAttempts) {
    return new CallOptions(timeout, maxAttempts, onRetry);
  }

  public CallOptions withOnRetry(Consumer<SluicegateException> onRetry) {
    return new CallOptions(timeout, maxAttempts, onRetry);
  }
}
