# frozen_string_literal: true

module Sluicegate
  # A connection to a server, made on first use; any number of threads may share it.
  #
  # Calls take and return the messages of Sluicegate::V1, and raise the subclasses of Error. Their options:
  # +timeout+, the seconds for the call with all its attempts (nil: no deadline); +max_attempts+: a call is made again
  # when the server asks for it (Error#retry_after) or none was reached, only before the first message of its answer, and
  # only while attempts and time are left; +max_wait+, the seconds of the longest wait: a server that asks for more is
  # not waited for; +on_wait+, called before each wait with the failure and the seconds, for a log.
  class Client
    # +address+ is HOST:PORT, dns:///HOST:PORT or unix:/path. +credentials+: those of Sluicegate.tls_credentials, nil:
    # plaintext. +api_key+: of a server that asks for one; send it over TLS only, it goes as it is. +round_robin+: call
    # all servers in turn that a dns:/// address names and that are ready. +channel_args+ are gRPC's.
    def initialize(address, credentials: nil, api_key: nil, round_robin: false, channel_args: {})
      @metadata = api_key ? { 'authorization' => "Bearer #{api_key}" } : {}
      @channel = Channel.open(address, credentials, round_robin: round_robin, given: channel_args)
      @stub = V1::InferenceService::Stub.new(address, nil, channel_override: @channel)
    end

    # Answers when every sequence has ended.
    def generate(request, **options)
      call(:generate, request, **options)
    end

    # The same, as it goes: a Stream. With a block, which gets the events, the call ends with the block.
    def generate_stream(request, **options, &block)
      attempts = attempts(**options)
      stream = Stream.new(attempts) do
        @stub.generate_stream(request, deadline: attempts.deadline, metadata: @metadata, return_op: true)
      end
      block ? each_and_cancel(stream, &block) : stream
    end

    def tokenize(request, **options)
      call(:tokenize, request, **options)
    end

    def detokenize(request, **options)
      call(:detokenize, request, **options)
    end

    def embed(request, **options)
      call(:embed, request, **options)
    end

    # No calls after this one; those that run go on.
    def close
      @channel.close
    end

    private

    def attempts(timeout: nil, max_attempts: 1, max_wait: 30, on_wait: nil)
      Attempts.new(timeout: timeout, max_attempts: max_attempts, max_wait: max_wait, on_wait: on_wait)
    end

    def call(method, request, **options)
      attempts = attempts(**options)
      begin
        Errors.readable { @stub.public_send(method, request, deadline: attempts.deadline, metadata: @metadata) }
      rescue Error => e
        wait = attempts.wait_after(e) or raise
        sleep(wait)
        retry
      end
    end

    def each_and_cancel(stream, &block)
      stream.each(&block)
    ensure
      stream.cancel
    end
  end
end
