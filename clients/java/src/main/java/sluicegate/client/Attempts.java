package sluicegate.client;

import io.grpc.Deadline;
import io.grpc.Status;
import io.grpc.stub.AbstractStub;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;

/** The attempts of one call: how many are left, and until when. */
final class Attempts {
  private static final Duration FIRST_BACKOFF = Duration.ofMillis(200);
  private static final Duration CENTURY = Duration.ofDays(365 * 100);

  private final CallOptions options;
  private final BooleanSupplier isClosed;
  private final Optional<Deadline> deadline;
  private int failed;

  /** None follows once the client {@code isClosed}, which gRPC tells as UNAVAILABLE. */
  Attempts(CallOptions options, BooleanSupplier isClosed) {
    this.options = options;
    this.isClosed = isClosed;
    this.deadline = options.timeout().map(timeout -> Deadline.after(nanos(timeout), TimeUnit.NANOSECONDS));
  }

  /** Whether none has failed yet. */
  boolean isFirst() {
    return failed == 0;
  }

  /** {@code stub} with the deadline: one for all attempts. */
  <S extends AbstractStub<S>> S timed(S stub) {
    return deadline.map(stub::withDeadline).orElse(stub);
  }

  /** How long to wait before the next attempt; empty: {@code error} stands. */
  Optional<Duration> waitAfter(SluicegateException error) {
    failed++;
    if (failed >= options.maxAttempts() || isClosed.getAsBoolean()) {
      return Optional.empty();
    }
    Optional<Duration> wait = wait(error).filter(this::isInTime);
    wait.ifPresent(delay -> options.onWait().accept(error, delay));
    return wait;
  }

  /** What the server asks for, or where it does not say when, or there was none, a backoff that doubles. */
  private Optional<Duration> wait(SluicegateException error) {
    Duration asked = error.retryAfter().orElse(Duration.ZERO);
    if (asked.compareTo(options.maxWait()) > 0) {
      return Optional.empty();
    }
    if (!asked.isZero()) {
      return Optional.of(between(nanos(asked), nanos(asked) * 1.1));
    }
    if (error.retryAfter().isEmpty() && error.code() != Status.Code.UNAVAILABLE) {
      return Optional.empty();
    }
    double backoff = Math.min(FIRST_BACKOFF.toNanos() * Math.pow(2, failed - 1), nanos(options.maxWait()));
    return Optional.of(between(backoff / 2, backoff));
  }

  /** Those that were refused together should not come back together. */
  private static Duration between(double leastNanos, double mostNanos) {
    double chance = ThreadLocalRandom.current().nextDouble();
    return Duration.ofNanos((long) (leastNanos + chance * (mostNanos - leastNanos)));
  }

  /** The server's own word on what is wrong says more than the deadline that would pass during the wait. */
  private boolean isInTime(Duration wait) {
    return deadline.map(each -> each.timeRemaining(TimeUnit.NANOSECONDS) > wait.toNanos()).orElse(true);
  }

  /** A century for what is longer: the clock ends somewhere beyond. */
  private static long nanos(Duration duration) {
    return duration.compareTo(CENTURY) > 0 ? CENTURY.toNanos() : duration.toNanos();
  }
}
