#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <optional>
#include <string>

namespace sluicegate {

// PEM files. Empty: the authorities that gRPC knows; no certificate of the client's own.
struct Tls {
  std::string ca_file = {};
  std::string cert_file = {};
  std::string key_file = {};
};

// Keepalive, answers of any size, no proxy from the environment. Change what you need and give it to Connect.
grpc::ChannelArguments DefaultArguments();

struct ConnectOptions {
  std::optional<Tls> tls;    // none: plaintext
  bool round_robin = false;  // call all servers in turn that a dns:/// address names and that are ready
  grpc::ChannelArguments arguments = DefaultArguments();
};

// A connection, made on first use. `address` is HOST:PORT, dns:///HOST:PORT or unix:/path.
// Throws std::runtime_error when a file cannot be read.
std::shared_ptr<grpc::Channel> Connect(const std::string& address, const ConnectOptions& options = {});

}  // namespace sluicegate
