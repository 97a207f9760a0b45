# frozen_string_literal: true

# Refuses +refusals+ calls with +refusal+, then answers "Paris".
class FakeServer < Sluicegate::V1::InferenceService::Service
  attr_accessor :refusals, :refusal, :after_first, :endless, :silent
  attr_reader :calls, :authorization, :dropped, :address

  # A refusal with all details; +retry_after+ in seconds, nil: without RetryInfo.
  def self.refusal(code, retry_after = nil)
    violation = Google::Rpc::BadRequest::FieldViolation.new(
      field: 'sampling_params.top_p', description: 'must be in (0, 1], got 3.0'
    )
    details = [Google::Rpc::ErrorInfo.new(reason: 'QUEUE_FULL'),
               Google::Rpc::BadRequest.new(field_violations: [violation])]
    details << Google::Rpc::RetryInfo.new(retry_delay: duration(retry_after)) if retry_after
    status = Google::Rpc::Status.new(code: code, message: 'refused',
                                     details: details.map { |each| Google::Protobuf::Any.pack(each) })
    GRPC::BadStatus.new_status_exception(code, 'refused',
                                         { 'grpc-status-details-bin' => Google::Rpc::Status.encode(status) })
  end

  # Two refusals: one whose details are none, and one of whose details one is none.
  def self.garbled
    garbage = "\xff\xff\xff".b
    info = Google::Protobuf::Any.new(type_url: 'type.googleapis.com/google.rpc.ErrorInfo', value: garbage)
    code = GRPC::Core::StatusCodes::RESOURCE_EXHAUSTED
    [garbage, Google::Rpc::Status.encode(Google::Rpc::Status.new(code: code, details: [info]))].map do |details|
      GRPC::BadStatus.new_status_exception(code, 'full', { 'grpc-status-details-bin' => details })
    end
  end

  def self.duration(seconds)
    Google::Protobuf::Duration.new(seconds: seconds.floor, nanos: (seconds % 1 * 1e9).round)
  end

  def initialize
    super
    @calls = 0
    @refusals = 0
    @refusal = FakeServer.refusal(GRPC::Core::StatusCodes::RESOURCE_EXHAUSTED, 0.001)
    @dropped = Queue.new
    @until_stopped = Queue.new
    @server = GRPC::RpcServer.new(pool_size: 2, poll_period: 1)
    @address = "127.0.0.1:#{@server.add_http2_port('127.0.0.1:0', :this_port_is_insecure)}"
    @server.handle(self)
    @thread = Thread.new { @server.run }
    @server.wait_till_running
  end

  def stop
    @until_stopped.close
    @server.stop
    @thread.join
  end

  def generate(_request, call)
    @authorization = call.metadata['authorization']
    answer_or_refuse
    Sluicegate::V1::GenerateResponse.new(outputs: [Sluicegate::V1::SequenceOutput.new(text: 'Paris')])
  end

  def generate_stream(_request, call)
    answer_or_refuse
    Enumerator.new do |events|
      @until_stopped.pop if silent
      events << event
      raise after_first if after_first

      events << event while endless && !call.cancelled?
    ensure
      @dropped << true
    end
  end

  private

  def answer_or_refuse
    @calls += 1
    raise refusal if @calls <= refusals
  end

  def event
    Sluicegate::V1::GenerateStreamResponse.new(delta: Sluicegate::V1::Delta.new(text: 'Paris'))
  end
end
