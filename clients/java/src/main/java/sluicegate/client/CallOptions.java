package sluicegate.client;

import java.time.Duration;
import java.util.Optional;
import java.util.function.BiConsumer;

/**
 * How to make a call. It is made again only when the server asks for it, after the time it asks for ({@link
 * SluicegateException#retryAfter}), only before the first message of its answer, and only while attempts and time are
 * left.
 *
 * @param timeout of the call with all its attempts; empty: no deadline
 * @param maxAttempts at least 1
 * @param onWait called before each wait with the refusal and the time, for a log
 */
public record CallOptions(
    Optional<Duration> timeout, int maxAttempts, BiConsumer<SluicegateException, Duration> onWait) {
  /** One attempt, without a deadline. */
  public static final CallOptions DEFAULT = new CallOptions(Optional.empty(), 1, (refusal, wait) -> {});

  public CallOptions withTimeout(Duration timeout) {
    return new CallOptions(Optional.of(timeout), maxAttempts, onWait);
  }

  public CallOptions withMaxAttempts(int maxAttempts) {
    return new CallOptions(timeout, maxAttempts, onWait);
  }

  public CallOptions withOnWait(BiConsumer<SluicegateException, Duration> onWait) {
    return new CallOptions(timeout, maxAttempts, onWait);
  }
}
