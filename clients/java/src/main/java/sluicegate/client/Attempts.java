package sluicegate.client;

import io.grpc.Deadline;
import io.grpc.stub.AbstractStub;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/** The attempts of one call: how many are left, and until when. */
final class Attempts {
  private final CallOptions options;
  private final Optional<Deadline> deadline;
  private int left;

  Attempts(CallOptions options) {
    this.options = options;
    this.deadline = options.timeout().map(timeout -> Deadline.after(timeout.toNanos(), TimeUnit.NANOSECONDS));
    this.left = options.maxAttempts();
  }

  /** {@code stub} with the deadline: one for all attempts. */
  <S extends AbstractStub<S>> S timed(S stub) {
    return deadline.map(stub::withDeadline).orElse(stub);
  }

  /** How long to wait before the next attempt; empty: {@code error} stands. */
  Optional<Duration> waitAfter(SluicegateException error) {
    left--;
    Optional<Duration> wait =
        error.retryAfter().map(Attempts::aLittleLonger).filter(delay -> left > 0 && isInTime(delay));
    wait.ifPresent(delay -> options.onWait().accept(error, delay));
    return wait;
  }

  /** Those that were refused together should not come back together. */
  private static Duration aLittleLonger(Duration wait) {
    return Duration.ofNanos((long) (wait.toNanos() * ThreadLocalRandom.current().nextDouble(1.0, 1.1)));
  }

  /** The server's own word on what is wrong says more than the deadline that would pass during the wait. */
  private boolean isInTime(Duration wait) {
    return deadline.map(each -> each.timeRemaining(TimeUnit.NANOSECONDS) > wait.toNanos()).orElse(true);
  }
}
