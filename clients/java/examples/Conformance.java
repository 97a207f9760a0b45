import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicInteger;
import sluicegate.client.CallOptions;
import sluicegate.client.ClientBuilder;
import sluicegate.client.GenerateStream;
import sluicegate.client.SluicegateClient;
import sluicegate.client.SluicegateException;
import sluicegate.v1.ChatMessage;
import sluicegate.v1.DetokenizeRequest;
import sluicegate.v1.FinishReason;
import sluicegate.v1.Finished;
import sluicegate.v1.GenerateRequest;
import sluicegate.v1.Started;
import sluicegate.v1.TokenizeRequest;

/** The calls of clients/conformance/README.md, whose lines it prints. */
public final class Conformance {
  private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);
  private static final GenerateRequest FRANCE = france().build();

  private final SluicegateClient client;

  private Conformance(SluicegateClient client) {
    this.client = client;
  }

  public static void main(String[] arguments) {
    try (var client = SluicegateClient.builder(System.getenv("SLUICEGATE_ADDRESS")).build()) {
      new Conformance(client).run();
    } catch (RuntimeException error) {
      System.err.println("conformance: " + error);
      System.exit(1);
    }
  }

  private void run() {
    unary();
    tokens();
    stream();
    overload();
    cancel();
    deadline();
    invalid();
    unknownModel();
    secured();
  }

  private void unary() {
    var response = client.generate(FRANCE);
    var output = response.getOutputs(0);
    OUT.printf("unary: \"%s\" %s, %d prompt tokens, %d output tokens%n", output.getText(),
        name(output.getFinishReason()), response.getUsage().getNumPromptTokens(),
        response.getUsage().getNumOutputTokens());
  }

  private void tokens() {
    var request = TokenizeRequest.newBuilder().setText("Grüße, 世界 🙂").setAddSpecialTokens(false).build();
    var back = DetokenizeRequest.newBuilder().addAllTokenIds(client.tokenize(request).getTokenIdsList()).build();
    OUT.printf("tokens: \"%s\" comes back%n", client.detokenize(back).getText());
  }

  private void stream() {
    var request = GenerateRequest.newBuilder();
    request.getChatBuilder().addMessages(ChatMessage.newBuilder().setRole("user")
        .setContent("What is the capital of France? Answer in one sentence."));
    request.getSamplingParamsBuilder().setTemperature(0).setMaxTokens(32);
    var text = new StringBuilder();
    var started = Started.getDefaultInstance();
    var finished = Finished.getDefaultInstance();
    try (var stream = client.generateStream(request.build())) {
      while (stream.hasNext()) {
        var event = stream.next();
        switch (event.getEventCase()) {
          case STARTED -> started = event.getStarted();
          case DELTA -> text.append(event.getDelta().getText());
          case FINISHED -> finished = event.getFinished();
          default -> { }
        }
      }
    }
    OUT.printf("stream: %d prompt tokens, \"%s\", %s, %d output tokens%n", started.getNumPromptTokens(), text,
        name(finished.getFinishReason()), finished.getUsage().getNumOutputTokens());
  }

  private void overload() {
    var request = endless(300).toBuilder();
    request.getSamplingParamsBuilder().setN(4).setTemperature(1);
    try (var stream = client.generateStream(request.build())) {
      readDeltas(stream, 1);
      var error = errorOf(() -> client.generate(FRANCE));
      OUT.printf("overload: %s %s%s%n", error.code(), error.reason(),
          error.retryAfter().isPresent() ? ", to be retried" : "");
      retry();
      stream.forEachRemaining(event -> { });
    }
  }

  private void retry() {
    var refusals = new AtomicInteger();
    var options = CallOptions.DEFAULT.withTimeout(Duration.ofSeconds(120)).withMaxAttempts(1000)
        .withOnWait((refusal, wait) -> refusals.incrementAndGet());
    var response = client.generate(FRANCE, options);
    if (refusals.get() == 0) {
      throw new IllegalStateException("the call was not refused");
    }
    OUT.printf("retry: \"%s\" after a refusal%n", response.getOutputs(0).getText());
  }

  private void cancel() {
    try (var stream = client.generateStream(endless(2000))) {
      readDeltas(stream, 3);
      stream.cancel();
      stream.forEachRemaining(event -> { });
      OUT.printf("cancel: %s after 3 deltas%n", stream.code());
    }
  }

  private void deadline() {
    var options = CallOptions.DEFAULT.withTimeout(Duration.ofMillis(200));
    OUT.printf("deadline: %s%n", errorOf(() -> client.generate(endless(2000), options)).code());
  }

  private void invalid() {
    var request = france();
    request.getSamplingParamsBuilder().setTopP(3).setMaxTokens(0);
    var error = errorOf(() -> client.generate(request.build()));
    OUT.printf("invalid: %s %s%n", error.code(), error.reason());
    error.violations().forEach(each -> OUT.printf("invalid: %s: %s%n", each.field(), each.description()));
  }

  private void unknownModel() {
    var error = errorOf(() -> client.generate(france().setModel("no-such-model").build()));
    OUT.printf("unknown model: %s %s%n", error.code(), error.reason());
  }

  private void secured() {
    var ca = Path.of(System.getenv("SLUICEGATE_TLS_CA"));
    var key = System.getenv("SLUICEGATE_API_KEY");
    try (var trusting = tlsClient().tls(ca).apiKey(key).build();
        var keyless = tlsClient().tls(ca).build();
        var untrusting = tlsClient().tls().apiKey(key).build()) {
      OUT.printf("tls: \"%s\" with a key%n", trusting.generate(FRANCE).getOutputs(0).getText());
      var error = errorOf(() -> keyless.generate(FRANCE));
      OUT.printf("no key: %s %s%n", error.code(), error.reason());
      OUT.printf("untrusted: %s%n", errorOf(() -> untrusting.generate(FRANCE)).code());
    }
  }

  private static ClientBuilder tlsClient() {
    return SluicegateClient.builder(System.getenv("SLUICEGATE_TLS_ADDRESS"));
  }

  private static GenerateRequest.Builder france() {
    var request = GenerateRequest.newBuilder().setText("The capital of France is");
    request.getSamplingParamsBuilder().setTemperature(0).setMaxTokens(2);
    return request;
  }

  private static GenerateRequest endless(int maxTokens) {
    var request = GenerateRequest.newBuilder().setText("The capital of France is");
    request.getSamplingParamsBuilder().setIgnoreEos(true).setMaxTokens(maxTokens);
    return request.build();
  }

  private static void readDeltas(GenerateStream stream, int number) {
    for (int read = 0; read < number; ) {
      if (stream.next().hasDelta()) {
        read++;
      }
    }
  }

  private static SluicegateException errorOf(Runnable call) {
    try {
      call.run();
    } catch (SluicegateException error) {
      return error;
    }
    throw new IllegalStateException("a call went well that should have failed");
  }

  private static String name(FinishReason reason) {
    return reason.name().substring("FINISH_REASON_".length());
  }
}
