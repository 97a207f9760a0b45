package sluicegate.client;

import java.time.Duration;
import java.util.Optional;
import java.util.function.BiConsumer;

/**
 * How to make a call. It is made again when the server asks for it ({@link SluicegateException#retryAfter}) or none was
 * reached (UNAVAILABLE), only before the first message of its answer, and only while attempts and time are left.
 *
 * @param timeout of the call with all its attempts; empty: no deadline
 * @param maxAttempts at least 1
 * @param maxWait bounds each wait; a server that asks for a longer one is not waited for
 * @param onWait called before each wait with the failure and the time, for a log
 */
public record CallOptions(
    Optional<Duration> timeout,
    int maxAttempts,
    Duration maxWait,
    BiConsumer<SluicegateException, Duration> onWait) {
  /** One attempt, without a deadline; waits, where there are more, of 30 seconds at most. */
  public static final CallOptions DEFAULT =
      new CallOptions(Optional.empty(), 1, Duration.ofSeconds(30), (failure, wait) -> {});

  public CallOptions withTimeout(Duration timeout) {
    return new CallOptions(Optional.of(timeout), maxAttempts, maxWait, onWait);
  }

  public CallOptions withMaxAttempts(int maxAttempts) {
    return new CallOptions(timeout, maxAttempts, maxWait, onWait);
  }

  public CallOptions withMaxWait(Duration maxWait) {
    return new CallOptions(timeout, maxAttempts, maxWait, onWait);
  }

  public CallOptions withOnWait(BiConsumer<SluicegateException, Duration> onWait) {
    return new CallOptions(timeout, maxAttempts, maxWait, onWait);
  }
}
