import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import sluicegate.client.CallOptions;
import sluicegate.client.SluicegateClient;
import sluicegate.client.SluicegateException;
import sluicegate.v1.ChatMessage;
import sluicegate.v1.GenerateRequest;

/**
 * Talks with the model: each line of standard input is a question, whose answer is written as it comes.
 * SLUICEGATE_ADDRESS says where the server is, SLUICEGATE_TLS_CA and SLUICEGATE_API_KEY how to get in.
 */
public final class Chat {
  private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

  public static void main(String[] arguments) throws IOException {
    var builder = SluicegateClient.builder(Environment.variable("SLUICEGATE_ADDRESS", "127.0.0.1:50051"));
    String ca = Environment.variable("SLUICEGATE_TLS_CA", "");
    String key = Environment.variable("SLUICEGATE_API_KEY", "");
    if (!ca.isEmpty()) {
      builder.tls(Path.of(ca));
    }
    if (!key.isEmpty()) {
      builder.apiKey(key);
    }
    try (SluicegateClient client = builder.build()) {
      talk(client, new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)));
    } catch (SluicegateException error) {
      System.err.println("chat: " + error.getMessage());
      System.exit(1);
    }
  }

  private static void talk(SluicegateClient client, BufferedReader questions) throws IOException {
    var request = GenerateRequest.newBuilder();
    request.getSamplingParamsBuilder().setMaxTokens(512);
    OUT.print("> ");
    for (String question = questions.readLine(); question != null; question = questions.readLine()) {
      request.getChatBuilder().addMessages(message("user", question));
      request.getChatBuilder().addMessages(message("assistant", answer(client, request.build())));
      OUT.print("> ");
    }
    OUT.println();
  }

  private static String answer(SluicegateClient client, GenerateRequest request) {
    var answer = new StringBuilder();
    try (var stream = client.generateStream(request, CallOptions.DEFAULT.withMaxAttempts(5))) {
      while (stream.hasNext()) {
        String text = stream.next().getDelta().getText();
        OUT.print(text);
        OUT.flush();
        answer.append(text);
      }
    }
    OUT.println();
    return answer.toString();
  }

  private static ChatMessage message(String role, String content) {
    return ChatMessage.newBuilder().setRole(role).setContent(content).build();
  }
}
