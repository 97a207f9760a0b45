package sluicegate.client;

import com.google.protobuf.Any;
import com.google.protobuf.ByteString;
import com.google.protobuf.Duration;
import com.google.rpc.BadRequest;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RetryInfo;
import io.grpc.Context;
import io.grpc.Grpc;
import io.grpc.InsecureServerCredentials;
import io.grpc.Metadata;
import io.grpc.Server;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import sluicegate.v1.GenerateRequest;
import sluicegate.v1.GenerateResponse;
import sluicegate.v1.GenerateStreamResponse;
import sluicegate.v1.InferenceServiceGrpc.InferenceServiceImplBase;

/** Refuses {@code refusals} calls with {@code refusal}, then answers "Paris". */
final class FakeServer extends InferenceServiceImplBase implements ServerInterceptor, AutoCloseable {
  private static final Metadata.Key<String> AUTHORIZATION =
      Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);
  private static final GenerateStreamResponse DELTA = delta();

  final AtomicInteger calls = new AtomicInteger();
  final CountDownLatch dropped = new CountDownLatch(1);
  volatile int refusals;
  volatile StatusRuntimeException refusal = refusal(Status.Code.RESOURCE_EXHAUSTED, 1);
  volatile StatusRuntimeException afterFirst;
  volatile boolean endless;
  volatile String authorization;

  private final Server server;

  FakeServer() throws IOException {
    this(0);
  }

  private FakeServer(int port) throws IOException {
    server = Grpc.newServerBuilderForPort(port, InsecureServerCredentials.create())
        .addService(this).intercept(this).build().start();
  }

  static FakeServer at(int port) {
    try {
      return new FakeServer(port);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  int port() {
    return server.getPort();
  }

  /** Two refusals: one whose details are none, and one of whose details one is none. */
  static List<StatusRuntimeException> garbled() {
    byte[] garbage = {-1, -1, -1};
    var trailers = new Metadata();
    trailers.put(Metadata.Key.of("grpc-status-details-bin", Metadata.BINARY_BYTE_MARSHALLER), garbage);
    var errorInfo = Any.pack(ErrorInfo.getDefaultInstance()).toBuilder().setValue(ByteString.copyFrom(garbage));
    var status = com.google.rpc.Status.newBuilder()
        .setCode(Status.Code.RESOURCE_EXHAUSTED.value()).addDetails(errorInfo);
    return List.of(
        Status.RESOURCE_EXHAUSTED.asRuntimeException(trailers), StatusProto.toStatusRuntimeException(status.build()));
  }

  /** A refusal with all details; {@code retryMillis} negative: without RetryInfo. */
  static StatusRuntimeException refusal(Status.Code code, long retryMillis) {
    var violation = BadRequest.FieldViolation.newBuilder()
        .setField("sampling_params.top_p").setDescription("must be in (0, 1], got 3.0");
    var status = com.google.rpc.Status.newBuilder().setCode(code.value()).setMessage("refused")
        .addDetails(Any.pack(ErrorInfo.newBuilder().setReason("QUEUE_FULL").build()))
        .addDetails(Any.pack(BadRequest.newBuilder().addFieldViolations(violation).build()));
    if (retryMillis >= 0) {
      var delay = Duration.newBuilder().setSeconds(retryMillis / 1000).setNanos((int) (retryMillis % 1000) * 1_000_000);
      status.addDetails(Any.pack(RetryInfo.newBuilder().setRetryDelay(delay).build()));
    }
    return StatusProto.toStatusRuntimeException(status.build());
  }

  ClientBuilder client() {
    return SluicegateClient.builder("127.0.0.1:" + server.getPort());
  }

  @Override
  public void generate(GenerateRequest request, StreamObserver<GenerateResponse> response) {
    if (calls.incrementAndGet() <= refusals) {
      response.onError(refusal);
      return;
    }
    var answer = GenerateResponse.newBuilder();
    answer.addOutputsBuilder().setText("Paris");
    response.onNext(answer.build());
    response.onCompleted();
  }

  @Override
  public void generateStream(GenerateRequest request, StreamObserver<GenerateStreamResponse> response) {
    if (calls.incrementAndGet() <= refusals) {
      response.onError(refusal);
      return;
    }
    Context.current().addListener(context -> dropped.countDown(), Runnable::run);
    response.onNext(DELTA);
    if (afterFirst != null) {
      response.onError(afterFirst);
    } else if (!endless) {
      response.onCompleted();
    }
  }

  @Override
  public <Q, A> ServerCall.Listener<Q> interceptCall(
      ServerCall<Q, A> call, Metadata headers, ServerCallHandler<Q, A> next) {
    authorization = headers.get(AUTHORIZATION);
    return next.startCall(call, headers);
  }

  @Override
  public void close() {
    server.shutdownNow();
  }

  private static GenerateStreamResponse delta() {
    var event = GenerateStreamResponse.newBuilder();
    event.getDeltaBuilder().setText("Paris");
    return event.build();
  }
}
