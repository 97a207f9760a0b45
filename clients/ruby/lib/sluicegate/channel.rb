# frozen_string_literal: true

module Sluicegate
  # How connections are set up.
  module Channel
    ARGUMENTS = {
      # gRPC would send even loopback traffic through an http_proxy of the environment.
      'grpc.enable_http_proxy' => 0,
      # Answers with log-probabilities of a long prompt pass gRPC's 4 MiB.
      'grpc.max_receive_message_length' => -1,
      # A server that is gone without a word, or hangs, is noticed while calls run: a stream would wait for ever.
      'grpc.keepalive_time_ms' => 20_000,
      'grpc.keepalive_timeout_ms' => 10_000,
      'grpc.http2.ping_timeout_ms' => 10_000,
      'grpc.http2.max_pings_without_data' => 0,
      # A server that is started again is found soon: gRPC alone would come to try every two minutes.
      'grpc.initial_reconnect_backoff_ms' => 200,
      'grpc.max_reconnect_backoff_ms' => 5_000
    }.freeze

    ROUND_ROBIN = {
      # Which servers are ready, the channel learns from a Watch of each one's health.
      'grpc.service_config' => '{"loadBalancingConfig": [{"round_robin": {}}],' \
                               ' "healthCheckConfig": {"serviceName": "readiness"}}',
      # Replicas that come with new addresses, where all that were known have left: gRPC's own is 30 s.
      'grpc.dns_min_time_between_resolutions_ms' => 1_000
    }.freeze

    # +given+ wins over the defaults.
    def self.open(address, credentials, round_robin:, given:)
      arguments = ARGUMENTS.merge(round_robin ? ROUND_ROBIN : {}, given)
      GRPC::ClientStub.setup_channel(nil, address, credentials || :this_channel_is_insecure, arguments)
    end
  end
  private_constant :Channel

  # TLS with a server whose certificate is of the authorities in +ca+ (nil: those that gRPC knows). +cert+ and +key+
  # are the client's own, for a server that asks for them. All are paths of PEM files. Raises SystemCallError.
  def self.tls_credentials(ca: nil, cert: nil, key: nil)
    GRPC::Core::ChannelCredentials.new(*[ca, key, cert].map { |path| path && File.read(path) })
  end
end
