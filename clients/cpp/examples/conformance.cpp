// The calls of clients/conformance/README.md, whose lines it prints.

#include <functional>
#include <iostream>

#include "environment.h"
#include "sluicegate/client.h"

namespace {

using namespace std::chrono_literals;
using sluicegate::CallOptions;
using sluicegate::Client;
using sluicegate::CodeName;
using sluicegate::Error;
using sluicegate::Stream;
using namespace sluicegate::v1;

GenerateRequest France() {
  GenerateRequest request;
  request.set_text("The capital of France is");
  request.mutable_sampling_params()->set_temperature(0);
  request.mutable_sampling_params()->set_max_tokens(2);
  return request;
}

GenerateRequest Endless(int max_tokens) {
  GenerateRequest request;
  request.set_text("The capital of France is");
  request.mutable_sampling_params()->set_ignore_eos(true);
  request.mutable_sampling_params()->set_max_tokens(max_tokens);
  return request;
}

std::string FinishName(FinishReason reason) {
  return FinishReason_Name(reason).substr(std::string("FINISH_REASON_").size());
}

Error ErrorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  throw std::runtime_error("a call went well that should have failed");
}

void ReadDeltas(Stream& stream, int number) {
  GenerateStreamResponse event;
  while (number > 0) {
    if (!stream.Read(&event)) throw std::runtime_error("the stream ended early");
    if (event.has_delta()) --number;
  }
}

void Unary(Client& client) {
  const auto response = client.Generate(France());
  const auto& output = response.outputs(0);
  std::cout << "unary: \"" << output.text() << "\" " << FinishName(output.finish_reason()) << ", "
            << response.usage().num_prompt_tokens() << " prompt tokens, " << response.usage().num_output_tokens()
            << " output tokens" << std::endl;
}

void Tokens(Client& client) {
  TokenizeRequest tokenize;
  tokenize.set_text("Grüße, 世界 🙂");
  tokenize.set_add_special_tokens(false);
  DetokenizeRequest detokenize;
  *detokenize.mutable_token_ids() = client.Tokenize(tokenize).token_ids();
  std::cout << "tokens: \"" << client.Detokenize(detokenize).text() << "\" comes back" << std::endl;
}

void Streamed(Client& client) {
  GenerateRequest request;
  auto* message = request.mutable_chat()->add_messages();
  message->set_role("user");
  message->set_content("What is the capital of France? Answer in one sentence.");
  request.mutable_sampling_params()->set_temperature(0);
  request.mutable_sampling_params()->set_max_tokens(32);
  std::string text;
  Started started;
  Finished finished;
  for (const auto& event : client.GenerateStream(request)) {
    if (event.has_started()) started = event.started();
    if (event.has_finished()) finished = event.finished();
    text += event.delta().text();
  }
  std::cout << "stream: " << started.num_prompt_tokens() << " prompt tokens, \"" << text << "\", "
            << FinishName(finished.finish_reason()) << ", " << finished.usage().num_output_tokens()
            << " output tokens" << std::endl;
}

void Retry(Client& client) {
  int refusals = 0;
  CallOptions options;
  options.timeout = 120s;
  options.max_attempts = 1000;
  options.on_wait = [&refusals](const Error&, std::chrono::milliseconds) { ++refusals; };
  const auto response = client.Generate(France(), options);
  if (refusals == 0) throw std::runtime_error("the call was not refused");
  std::cout << "retry: \"" << response.outputs(0).text() << "\" after a refusal" << std::endl;
}

void Overload(Client& client) {
  GenerateRequest request = Endless(300);
  request.mutable_sampling_params()->set_n(4);
  request.mutable_sampling_params()->set_temperature(1);
  Stream stream = client.GenerateStream(request);
  ReadDeltas(stream, 1);
  const Error error = ErrorOf([&client] { client.Generate(France()); });
  std::cout << "overload: " << CodeName(error.code()) << " " << error.reason()
            << (error.retry_after() ? ", to be retried" : "") << std::endl;
  Retry(client);
  for (GenerateStreamResponse event; stream.Read(&event);) {
  }
}

void Cancel(Client& client) {
  Stream stream = client.GenerateStream(Endless(2000));
  ReadDeltas(stream, 3);
  stream.Cancel();
  for (GenerateStreamResponse event; stream.Read(&event);) {
  }
  std::cout << "cancel: " << CodeName(stream.code()) << " after 3 deltas" << std::endl;
}

void Deadline(Client& client) {
  CallOptions options;
  options.timeout = 200ms;
  const Error error = ErrorOf([&] { client.Generate(Endless(2000), options); });
  std::cout << "deadline: " << CodeName(error.code()) << std::endl;
}

void Invalid(Client& client) {
  GenerateRequest request = France();
  request.mutable_sampling_params()->set_top_p(3);
  request.mutable_sampling_params()->set_max_tokens(0);
  const Error error = ErrorOf([&] { client.Generate(request); });
  std::cout << "invalid: " << CodeName(error.code()) << " " << error.reason() << std::endl;
  for (const auto& each : error.violations()) {
    std::cout << "invalid: " << each.field << ": " << each.description << std::endl;
  }
}

void UnknownModel(Client& client) {
  GenerateRequest request = France();
  request.set_model("no-such-model");
  const Error error = ErrorOf([&] { client.Generate(request); });
  std::cout << "unknown model: " << CodeName(error.code()) << " " << error.reason() << std::endl;
}

Client TlsClient(const std::string& ca_file, const std::string& api_key) {
  sluicegate::ConnectOptions options;
  options.tls = sluicegate::Tls{ca_file};
  return Client(sluicegate::Connect(Variable("SLUICEGATE_TLS_ADDRESS"), options), api_key);
}

void Secured() {
  const std::string ca = Variable("SLUICEGATE_TLS_CA"), key = Variable("SLUICEGATE_API_KEY");
  const auto response = TlsClient(ca, key).Generate(France());
  std::cout << "tls: \"" << response.outputs(0).text() << "\" with a key" << std::endl;
  const Error keyless = ErrorOf([&] { TlsClient(ca, "").Generate(France()); });
  std::cout << "no key: " << CodeName(keyless.code()) << " " << keyless.reason() << std::endl;
  const Error untrusted = ErrorOf([&] { TlsClient("", key).Generate(France()); });
  std::cout << "untrusted: " << CodeName(untrusted.code()) << std::endl;
}

}  // namespace

int main() {
  try {
    Client client(sluicegate::Connect(Variable("SLUICEGATE_ADDRESS")));
    for (const auto part : {Unary, Tokens, Streamed, Overload, Cancel, Deadline, Invalid, UnknownModel}) part(client);
    Secured();
  } catch (const std::exception& error) {
    std::cerr << "conformance: " << error.what() << std::endl;
    return 1;
  }
}
