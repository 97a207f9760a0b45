#include "sluicegate/client.h"

#include <thread>

#include "sluicegate/v1/inference_service.grpc.pb.h"
#include "status.h"
#include "stream_impl.h"

namespace sluicegate {

// The stub and the key. Streams share it, so that they may outlive the client.
class Client::Connection {
 public:
  using Stub = v1::InferenceService::Stub;
  template <typename Request, typename Response>
  using Method = grpc::Status (Stub::*)(grpc::ClientContext*, const Request&, Response*);

  Connection(std::shared_ptr<grpc::ChannelInterface> channel, const std::string& api_key)
      : stub_(std::move(channel)), authorization_(api_key.empty() ? "" : "Bearer " + api_key) {}

  template <typename Request, typename Response>
  Response Call(Method<Request, Response> method, const Request& request, const CallOptions& options) {
    Attempts attempts(options);
    for (;;) {
      grpc::ClientContext context;
      attempts.SetDeadline(&context);
      Authorize(&context);
      Response response;
      const grpc::Status status = (stub_.*method)(&context, request, &response);
      if (status.ok()) return response;
      const Error error = ErrorOf(status);
      const auto wait = attempts.WaitAfter(error);
      if (!wait) throw error;
      std::this_thread::sleep_for(*wait);
    }
  }

  std::unique_ptr<Reader> Start(grpc::ClientContext* context, const v1::GenerateRequest& request) {
    Authorize(context);
    return stub_.GenerateStream(context, request);
  }

 private:
  void Authorize(grpc::ClientContext* context) const {
    if (!authorization_.empty()) context->AddMetadata("authorization", authorization_);
  }

  Stub stub_;
  std::string authorization_;
};

Client::Client(std::shared_ptr<grpc::ChannelInterface> channel, const std::string& api_key)
    : connection_(std::make_shared<Connection>(std::move(channel), api_key)) {}

Client::~Client() = default;

v1::GenerateResponse Client::Generate(const v1::GenerateRequest& request, const CallOptions& options) {
  return connection_->Call(&Connection::Stub::Generate, request, options);
}

Stream Client::GenerateStream(const v1::GenerateRequest& request, const CallOptions& options) {
  auto start = [connection = connection_, request](grpc::ClientContext* context) {
    return connection->Start(context, request);
  };
  return Stream(std::make_unique<Stream::Impl>(start, options));
}

v1::TokenizeResponse Client::Tokenize(const v1::TokenizeRequest& request, const CallOptions& options) {
  return connection_->Call(&Connection::Stub::Tokenize, request, options);
}

v1::DetokenizeResponse Client::Detokenize(const v1::DetokenizeRequest& request, const CallOptions& options) {
  return connection_->Call(&Connection::Stub::Detokenize, request, options);
}

v1::EmbedResponse Client::Embed(const v1::EmbedRequest& request, const CallOptions& options) {
  return connection_->Call(&Connection::Stub::Embed, request, options);
}

}  // namespace sluicegate
