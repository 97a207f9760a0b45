// Talks with the model: each line of standard input is a question, whose answer is written as it comes.
// SLUICEGATE_ADDRESS says where the server is, SLUICEGATE_TLS_CA and SLUICEGATE_API_KEY how to get in.

#include <iostream>

#include "environment.h"
#include "sluicegate/client.h"

namespace {

void Say(sluicegate::v1::Chat* chat, const std::string& role, const std::string& content) {
  auto* message = chat->add_messages();
  message->set_role(role);
  message->set_content(content);
}

std::string Answer(sluicegate::Client& client, const sluicegate::v1::GenerateRequest& request) {
  sluicegate::CallOptions options;
  options.max_attempts = 5;
  std::string answer;
  for (const auto& event : client.GenerateStream(request, options)) {
    std::cout << event.delta().text() << std::flush;
    answer += event.delta().text();
  }
  std::cout << std::endl;
  return answer;
}

}  // namespace

int main() {
  sluicegate::ConnectOptions options;
  const std::string ca = Variable("SLUICEGATE_TLS_CA");
  if (!ca.empty()) options.tls = sluicegate::Tls{ca};
  sluicegate::v1::GenerateRequest request;
  request.mutable_sampling_params()->set_max_tokens(512);
  try {
    sluicegate::Client client(sluicegate::Connect(Variable("SLUICEGATE_ADDRESS", "127.0.0.1:50051"), options),
                              Variable("SLUICEGATE_API_KEY"));
    for (std::string line; std::cout << "> " << std::flush, std::getline(std::cin, line);) {
      Say(request.mutable_chat(), "user", line);
      Say(request.mutable_chat(), "assistant", Answer(client, request));
    }
    std::cout << std::endl;
  } catch (const std::exception& error) {
    std::cerr << "chat: " << error.what() << std::endl;
    return 1;
  }
}
