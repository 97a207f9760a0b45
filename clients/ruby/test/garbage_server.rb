# frozen_string_literal: true

# Answers every call with bytes that are no message.
class GarbageServer
  # What is sent as the answer.
  class Garbage
    def self.encode(_)
      "\xff\xff\xff".b
    end

    def self.decode(bytes)
      bytes
    end
  end

  # As InferenceService, but for what it answers.
  class Service
    include GRPC::GenericService
    self.marshal_class_method = :encode
    self.unmarshal_class_method = :decode
    self.service_name = Sluicegate::V1::InferenceService::Service.service_name
    rpc :Generate, Sluicegate::V1::GenerateRequest, Garbage
    rpc :GenerateStream, Sluicegate::V1::GenerateRequest, stream(Garbage)

    def generate(_request, _call)
      Garbage.new
    end

    def generate_stream(_request, _call)
      [Garbage.new]
    end
  end

  attr_reader :address

  def initialize
    @server = GRPC::RpcServer.new(pool_size: 2, poll_period: 1)
    @address = "127.0.0.1:#{@server.add_http2_port('127.0.0.1:0', :this_port_is_insecure)}"
    @server.handle(Service.new)
    @thread = Thread.new { @server.run }
    @server.wait_till_running
  end

  def stop
    @server.stop
    @thread.join
  end
end
