#include "sluicegate/channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <fstream>
#include <sstream>
#include <stdexcept>

namespace sluicegate {
namespace {

// Which servers are ready, the channel learns from a Watch of each one's health.
const char kRoundRobin[] =
    R"({"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": "readiness"}})";

std::string Contents(const std::string& path) {
  if (path.empty()) return "";
  std::ifstream file(path, std::ios::binary);
  std::ostringstream contents;
  if (!file || !(contents << file.rdbuf())) throw std::runtime_error("cannot read " + path);
  return contents.str();
}

std::shared_ptr<grpc::ChannelCredentials> Credentials(const std::optional<Tls>& tls) {
  if (!tls) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = Contents(tls->ca_file);
  options.pem_cert_chain = Contents(tls->cert_file);
  options.pem_private_key = Contents(tls->key_file);
  return grpc::SslCredentials(options);
}

}  // namespace

grpc::ChannelArguments DefaultArguments() {
  grpc::ChannelArguments arguments;
  // gRPC would send even loopback traffic through an http_proxy of the environment.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Answers with log-probabilities of a long prompt pass gRPC's 4 MiB.
  arguments.SetMaxReceiveMessageSize(-1);
  // A server that is gone without a word, or hangs, is noticed while calls run: a stream would wait for ever.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetInt("grpc.http2.ping_timeout_ms", 10'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // A server that is started again is found soon: gRPC alone would come to try every two minutes.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 5'000);
  return arguments;
}

std::shared_ptr<grpc::Channel> Connect(const std::string& address, const ConnectOptions& options) {
  auto arguments = options.arguments;
  if (options.round_robin) {
    arguments.SetServiceConfigJSON(kRoundRobin);
    // Replicas that come with new addresses, where all that were known have left: gRPC's own is 30 s.
    arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 1'000);
  }
  return grpc::CreateCustomChannel(address, Credentials(options.tls), arguments);
}

}  // namespace sluicegate
