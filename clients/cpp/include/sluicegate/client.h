#pragma once

#include <memory>
#include <string>

#include "sluicegate/call_options.h"
#include "sluicegate/channel.h"
#include "sluicegate/error.h"
#include "sluicegate/stream.h"
#include "sluicegate/v1/inference_service.pb.h"

namespace sluicegate {

// The calls of sluicegate.v1.InferenceService; any number of threads may share a client. All throw Error.
class Client {
 public:
  // `api_key`: of a server that asks for one. Send it over TLS only: it goes as it is.
  explicit Client(std::shared_ptr<grpc::ChannelInterface> channel, const std::string& api_key = "");
  ~Client();

  // Answers when every sequence has ended.
  v1::GenerateResponse Generate(const v1::GenerateRequest& request, const CallOptions& options = {});
  // The same, as it goes. The stream may outlive the client.
  Stream GenerateStream(const v1::GenerateRequest& request, const CallOptions& options = {});
  v1::TokenizeResponse Tokenize(const v1::TokenizeRequest& request, const CallOptions& options = {});
  v1::DetokenizeResponse Detokenize(const v1::DetokenizeRequest& request, const CallOptions& options = {});
  v1::EmbedResponse Embed(const v1::EmbedRequest& request, const CallOptions& options = {});

 private:
  class Connection;
  std::shared_ptr<Connection> connection_;
};

}  // namespace sluicegate
