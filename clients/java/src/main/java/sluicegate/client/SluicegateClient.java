package sluicegate.client;

import io.grpc.ManagedChannel;
import io.grpc.StatusRuntimeException;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import sluicegate.v1.DetokenizeRequest;
import sluicegate.v1.DetokenizeResponse;
import sluicegate.v1.EmbedRequest;
import sluicegate.v1.EmbedResponse;
import sluicegate.v1.GenerateRequest;
import sluicegate.v1.GenerateResponse;
import sluicegate.v1.InferenceServiceGrpc.InferenceServiceBlockingStub;
import sluicegate.v1.TokenizeRequest;
import sluicegate.v1.TokenizeResponse;

/**
 * A connection to a server, made on first use; any number of threads may share it. All calls throw {@link
 * SluicegateException}.
 */
public final class SluicegateClient implements AutoCloseable {
  private final ManagedChannel channel;
  private final InferenceServiceBlockingStub stub;

  SluicegateClient(ManagedChannel channel, InferenceServiceBlockingStub stub) {
    this.channel = channel;
    this.stub = stub;
  }

  /** {@code address} is {@code HOST:PORT} or {@code dns:///HOST:PORT}. */
  public static ClientBuilder builder(String address) {
    return new ClientBuilder(address);
  }

  /** Answers when every sequence has ended. */
  public GenerateResponse generate(GenerateRequest request, CallOptions options) {
    return call(stub -> stub.generate(request), options);
  }

  public GenerateResponse generate(GenerateRequest request) {
    return generate(request, CallOptions.DEFAULT);
  }

  /** The same as {@link #generate}, as it goes. Close the stream. */
  public GenerateStream generateStream(GenerateRequest request, CallOptions options) {
    Attempts attempts = new Attempts(options, channel::isShutdown);
    return new GenerateStream(() -> next(attempts).generateStream(request), attempts);
  }

  public GenerateStream generateStream(GenerateRequest request) {
    return generateStream(request, CallOptions.DEFAULT);
  }

  public TokenizeResponse tokenize(TokenizeRequest request, CallOptions options) {
    return call(stub -> stub.tokenize(request), options);
  }

  public TokenizeResponse tokenize(TokenizeRequest request) {
    return tokenize(request, CallOptions.DEFAULT);
  }

  public DetokenizeResponse detokenize(DetokenizeRequest request, CallOptions options) {
    return call(stub -> stub.detokenize(request), options);
  }

  public DetokenizeResponse detokenize(DetokenizeRequest request) {
    return detokenize(request, CallOptions.DEFAULT);
  }

  public EmbedResponse embed(EmbedRequest request, CallOptions options) {
    return call(stub -> stub.embed(request), options);
  }

  public EmbedResponse embed(EmbedRequest request) {
    return embed(request, CallOptions.DEFAULT);
  }

  /** Cancels what still runs. */
  @Override
  public void close() {
    channel.shutdownNow();
  }

  private <T> T call(Function<InferenceServiceBlockingStub, T> method, CallOptions options) {
    Attempts attempts = new Attempts(options, channel::isShutdown);
    while (true) {
      try {
        return method.apply(next(attempts));
      } catch (StatusRuntimeException failure) {
        SluicegateException error = ErrorDetails.readable(failure);
        sleep(attempts.waitAfter(error).orElseThrow(() -> error), error);
      }
    }
  }

  private InferenceServiceBlockingStub next(Attempts attempts) {
    if (!attempts.isFirst()) {
      // gRPC alone would come to try every two minutes whether a server is there again.
      channel.resetConnectBackoff();
    }
    return attempts.timed(stub);
  }

  /** Throws {@code error} if the thread is interrupted. */
  private static void sleep(Duration wait, SluicegateException error) {
    try {
      TimeUnit.NANOSECONDS.sleep(wait.toNanos());
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
      throw error;
    }
  }
}
