package sluicegate.client;

import io.grpc.Context;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.time.Duration;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import sluicegate.v1.GenerateStreamResponse;

/**
 * Events of a request as they come: one {@code started}, then deltas, then one {@code finished} for each sequence. One
 * thread reads; any may cancel. Closing the stream cancels the call.
 *
 * <p>Reading throws {@link SluicegateException} when the call fails, and ends quietly after {@link #cancel}.
 */
public final class GenerateStream implements Iterator<GenerateStreamResponse>, AutoCloseable {
  private final Supplier<Iterator<GenerateStreamResponse>> start;
  private final Attempts attempts;
  private final Context.CancellableContext context = Context.current().withCancellation();
  private final CountDownLatch cancelled = new CountDownLatch(1);
  private Iterator<GenerateStreamResponse> events;
  private boolean answered;
  private boolean ended;
  private Status.Code code = Status.Code.OK;

  /** {@code start} makes the call. */
  GenerateStream(Supplier<Iterator<GenerateStreamResponse>> start, Attempts attempts) {
    this.start = start;
    this.attempts = attempts;
    startAttempt();
  }

  @Override
  public boolean hasNext() {
    while (!ended) {
      try {
        if (events.hasNext()) {
          return answered = true;
        }
        ended = true;
      } catch (StatusRuntimeException failure) {
        recover(ErrorDetails.readable(failure));
      }
    }
    return false;
  }

  @Override
  public GenerateStreamResponse next() {
    if (!hasNext()) {
      throw new NoSuchElementException("the stream has ended");
    }
    return events.next();
  }

  /** Ends the call; the server drops the request. */
  public void cancel() {
    cancelled.countDown();
    context.cancel(null);
  }

  /** How the call ended, once {@link #hasNext} has returned false: OK or CANCELLED. */
  public Status.Code code() {
    return code;
  }

  @Override
  public void close() {
    cancel();
  }

  /** Begins anew after {@code error}, or throws it. */
  private void recover(SluicegateException error) {
    Optional<Duration> wait = isCancelled() || answered ? Optional.empty() : attempts.waitAfter(error);
    if (wait.isPresent() && sleeps(wait.get())) {
      startAttempt();
      return;
    }
    ended = true;
    code = isCancelled() ? Status.Code.CANCELLED : error.code();
    if (!isCancelled()) {
      throw error;
    }
  }

  private void startAttempt() {
    // A call that is made in the context ends with it.
    Context before = context.attach();
    try {
      events = start.get();
    } finally {
      context.detach(before);
    }
  }

  private boolean isCancelled() {
    return cancelled.getCount() == 0;
  }

  /** False if the stream is cancelled, or the thread interrupted, meanwhile. */
  private boolean sleeps(Duration wait) {
    try {
      return !cancelled.await(wait.toNanos(), TimeUnit.NANOSECONDS);
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
      return false;
    }
  }
}
