package sluicegate.client;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;
import static org.junit.Assert.fail;

import io.grpc.Status;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.After;
import org.junit.Before;
import org.junit.Test;
import sluicegate.v1.GenerateRequest;

/** Errors, retries and cancelling, against a server in this process that answers as each test says. */
public final class ClientTest {
  private static final GenerateRequest REQUEST = GenerateRequest.getDefaultInstance();
  private static final long ONE_HOUR_MILLIS = 3_600_000;

  private FakeServer server;
  private SluicegateClient client;

  @Before
  public void connect() throws IOException {
    server = new FakeServer();
    client = server.client().apiKey("sesame").build();
  }

  @After
  public void close() {
    client.close();
    server.close();
  }

  /** An error carries the code, the message and all details of the server. */
  @Test
  public void errorsHaveDetails() {
    server.refusals = 1;
    server.refusal = FakeServer.refusal(Status.Code.INVALID_ARGUMENT, 1500);
    var error = assertThrows(SluicegateException.class, () -> client.generate(REQUEST));
    assertEquals(Status.Code.INVALID_ARGUMENT, error.code());
    assertEquals("refused", error.getMessage());
    assertEquals("QUEUE_FULL", error.reason());
    assertEquals(List.of(new Violation("sampling_params.top_p", "must be in (0, 1], got 3.0")), error.violations());
    assertEquals(Optional.of(Duration.ofMillis(1500)), error.retryAfter());
  }

  /** Details that cannot be read are left out. */
  @Test
  public void detailsMayBeGarbage() {
    server.refusals = 2;
    for (var garbled : FakeServer.garbled()) {
      server.refusal = garbled;
      var error = assertThrows(SluicegateException.class, () -> client.generate(REQUEST));
      assertEquals(Status.Code.RESOURCE_EXHAUSTED, error.code());
      assertEquals("", error.reason());
    }
  }

  /** A server that says "again", but not when, or that is away, is asked less and less often. */
  @Test
  public void waitsDoubleWhereNobodySays() {
    server.refusals = 100;
    for (var failure : List.of(
        FakeServer.refusal(Status.Code.RESOURCE_EXHAUSTED, 0), Status.UNAVAILABLE.asRuntimeException())) {
      server.refusal = failure;
      var waits = new ArrayList<Long>();
      var options = attempts(4).withMaxWait(Duration.ofMillis(350))
          .withOnWait((refusal, wait) -> waits.add(wait.toMillis()));
      assertThrows(SluicegateException.class, () -> client.generate(REQUEST, options));
      assertEquals(3, waits.size());
      assertTrue(waits.toString(), waits.get(0) >= 100 && waits.get(0) <= 200 && waits.get(1) >= 175);
      assertTrue(waits.toString(), waits.stream().allMatch(wait -> wait <= 350));
    }
  }

  /** A server that asks for a longer wait than maxWait is not waited for. */
  @Test
  public void waitsAreBounded() {
    server.refusals = 100;
    for (long millis : List.of(31_000L, Long.MAX_VALUE)) {
      server.refusal = FakeServer.refusal(Status.Code.RESOURCE_EXHAUSTED, millis);
      assertThrows(SluicegateException.class, () -> client.generate(REQUEST, attempts(5)));
    }
    assertEquals(2, server.calls.get());
  }

  /** A timeout beyond the end of the clock is none. */
  @Test
  public void timeoutsMayBeLong() {
    var options = CallOptions.DEFAULT.withTimeout(Duration.ofSeconds(Long.MAX_VALUE));
    assertEquals("Paris", client.generate(REQUEST, options).getOutputs(0).getText());
  }

  /** A client that is closed has nothing to wait for. */
  @Test
  public void closedClientsDoNotTryAgain() {
    client.close();
    var options = attempts(5).withOnWait((failure, wait) -> fail("waits after " + failure));
    assertEquals(Status.Code.UNAVAILABLE,
        assertThrows(SluicegateException.class, () -> client.generate(REQUEST, options)).code());
  }

  /** A server that is there again is found by the next attempt. */
  @Test
  public void serversComeBack() throws IOException {
    int port = server.port();
    server.close();
    var again = new AtomicReference<FakeServer>();
    var options = attempts(100).withMaxWait(Duration.ofMillis(10)).withOnWait((failure, wait) -> {
      assertEquals(Status.Code.UNAVAILABLE, failure.code());
      if (again.get() == null) {
        again.set(FakeServer.at(port));
      }
    });
    assertEquals("Paris", client.generate(REQUEST, options).getOutputs(0).getText());
    again.get().close();
  }

  /** Without RetryInfo there is one attempt. */
  @Test
  public void withoutRetryInfoAnErrorIsFinal() {
    server.refusals = 100;
    server.refusal = Status.INTERNAL.withDescription("oops").asRuntimeException();
    var error = assertThrows(SluicegateException.class, () -> client.generate(REQUEST, attempts(5)));
    assertEquals(Status.Code.INTERNAL, error.code());
    assertEquals("", error.reason());
    assertEquals(Optional.empty(), error.retryAfter());
    assertEquals(1, server.calls.get());
  }

  /** A refused call is made again until it is answered, and onWait sees each refusal. */
  @Test
  public void refusedCallsAreRetried() {
    server.refusals = 2;
    var seen = new ArrayList<String>();
    var options = attempts(3).withTimeout(Duration.ofMinutes(1))
        .withOnWait((refusal, wait) -> seen.add(refusal.reason()));
    assertEquals("Paris", client.generate(REQUEST, options).getOutputs(0).getText());
    assertEquals(List.of("QUEUE_FULL", "QUEUE_FULL"), seen);
  }

  /** Retries end with the attempts; by default there is one. */
  @Test
  public void attemptsAreBounded() {
    server.refusals = 100;
    assertThrows(SluicegateException.class, () -> client.generate(REQUEST, attempts(3)));
    assertEquals(3, server.calls.get());
    assertThrows(SluicegateException.class, () -> client.generate(REQUEST));
    assertEquals(4, server.calls.get());
  }

  /** A wait that would pass the deadline is not begun: the refusal is what the caller gets. */
  @Test
  public void retriesKeepTheDeadline() {
    server.refusals = 100;
    server.refusal = FakeServer.refusal(Status.Code.UNAVAILABLE, ONE_HOUR_MILLIS);
    var options = attempts(5).withTimeout(Duration.ofMinutes(1));
    var error = assertThrows(SluicegateException.class, () -> client.generate(REQUEST, options));
    assertEquals(Status.Code.UNAVAILABLE, error.code());
    assertEquals(1, server.calls.get());
  }

  /** A stream is begun again as long as nothing of it has come. */
  @Test
  public void refusedStreamsAreRetried() {
    server.refusals = 2;
    try (var stream = client.generateStream(REQUEST, attempts(3))) {
      assertEquals("Paris", stream.next().getDelta().getText());
      assertFalse(stream.hasNext());
    }
  }

  /** Once a message has come, an error ends the stream. */
  @Test
  public void begunStreamsAreNotRetried() {
    server.afterFirst = FakeServer.refusal(Status.Code.UNAVAILABLE, 1);
    try (var stream = client.generateStream(REQUEST, attempts(5))) {
      stream.next();
      assertEquals(Status.Code.UNAVAILABLE, assertThrows(SluicegateException.class, stream::hasNext).code());
    }
    assertEquals(1, server.calls.get());
  }

  /** Cancelling ends a stream without an error, also one that waits for its next attempt. */
  @Test
  public void cancelEndsTheWait() {
    server.refusals = 100;
    server.refusal = FakeServer.refusal(Status.Code.UNAVAILABLE, ONE_HOUR_MILLIS);
    var waiting = new AtomicReference<GenerateStream>();
    var options = attempts(5).withMaxWait(Duration.ofDays(1))
        .withOnWait((refusal, wait) -> waiting.get().cancel());
    try (var stream = client.generateStream(REQUEST, options)) {
      waiting.set(stream);
      assertFalse(stream.hasNext());
      assertEquals(Status.Code.CANCELLED, stream.code());
    }
  }

  /** Closing a stream that still runs cancels the call at the server. */
  @Test(timeout = 60_000)
  public void closingCancels() throws InterruptedException {
    server.endless = true;
    try (var stream = client.generateStream(REQUEST)) {
      stream.next();
    }
    server.dropped.await();
  }

  /** The key goes along as a bearer token. */
  @Test
  public void theKeyIsSent() {
    client.generate(REQUEST);
    assertEquals("Bearer sesame", server.authorization);
  }

  private static CallOptions attempts(int number) {
    return CallOptions.DEFAULT.withMaxAttempts(number);
  }
}
