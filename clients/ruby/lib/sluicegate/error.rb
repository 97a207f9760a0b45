# frozen_string_literal: true

require 'google/protobuf/well_known_types'
require 'google/rpc/error_details_pb'
require 'grpc/google_rpc_status_utils'

module Sluicegate
  # One thing wrong with a request: the path of the field, as the proto spells it, such as
  # +sampling_params.top_p+, and what is wrong with it, with the bound.
  Violation = Struct.new(:field, :description)

  # A call that failed; +cause+ is gRPC's own error.
  class Error < StandardError
    # The gRPC status, such as +:RESOURCE_EXHAUSTED+.
    attr_reader :code
    # The server's name for the fault; empty when it is not the server that answers.
    attr_reader :reason
    # What is wrong with the request: an array of Violation.
    attr_reader :violations
    # The seconds to wait before the next try; nil: the server did not say that there should be one; 0: it did, but not
    # when.
    attr_reader :retry_after

    def initialize(message, code: :UNKNOWN, reason: '', violations: [], retry_after: nil)
      super(message)
      @code = code
      @reason = reason
      @violations = violations
      @retry_after = retry_after
    end
  end

  # The request itself is wrong: see +violations+.
  class InvalidRequestError < Error; end
  # The server does not have this model or adapter.
  class NotFoundError < Error; end
  # Another live request has this +request_id+.
  class AlreadyExistsError < Error; end
  # The queue is full, or the request is larger than the server takes: see +retry_after+.
  class OverloadedError < Error; end
  # The server cannot be reached, is starting or is leaving: see +retry_after+.
  class UnavailableError < Error; end
  # The call took longer than its +timeout+; the server has dropped it.
  class DeadlineExceededError < Error; end
  # Something else than the stream's own +cancel+ ended the call.
  class CallCancelledError < Error; end
  # The server wants credentials.
  class UnauthenticatedError < Error; end
  # The server does not do this.
  class NotSupportedError < Error; end
  # A fault of the server.
  class InternalError < Error; end

  # Turns gRPC's errors into those above.
  module Errors
    CODES = GRPC::Core::StatusCodes.constants.to_h { |name| [GRPC::Core::StatusCodes.const_get(name), name] }.freeze
    CLASSES = {
      INVALID_ARGUMENT: InvalidRequestError,
      NOT_FOUND: NotFoundError,
      ALREADY_EXISTS: AlreadyExistsError,
      RESOURCE_EXHAUSTED: OverloadedError,
      UNAVAILABLE: UnavailableError,
      DEADLINE_EXCEEDED: DeadlineExceededError,
      CANCELLED: CallCancelledError,
      UNAUTHENTICATED: UnauthenticatedError,
      UNIMPLEMENTED: NotSupportedError,
      INTERNAL: InternalError
    }.freeze
    private_constant :CODES, :CLASSES

    # What the block returns; raises what gRPC raises in it as an Error.
    def self.readable
      yield
    rescue GRPC::BadStatus => e
      raise from_status(e)
    rescue Google::Protobuf::ParseError => e
      raise InternalError.new("the answer cannot be read: #{e.message}", code: :INTERNAL)
    end

    def self.from_status(status)
      code = CODES.fetch(status.code, :UNKNOWN)
      CLASSES.fetch(code, Error).new(status.details, code: code, **details(status))
    end

    def self.details(status)
      (status.to_rpc_status&.details || []).each_with_object({}) do |detail, known|
        known.merge!(told(detail))
      rescue Google::Protobuf::ParseError
        # Of a fault that is told badly, the rest is told all the same.
      end
    end

    def self.told(detail)
      if (info = detail.unpack(Google::Rpc::ErrorInfo))
        { reason: info.reason }
      elsif (request = detail.unpack(Google::Rpc::BadRequest))
        { violations: request.field_violations.map { |each| Violation.new(each.field, each.description) } }
      elsif (retrying = detail.unpack(Google::Rpc::RetryInfo))
        { retry_after: seconds(retrying.retry_delay) }
      else
        {}
      end
    end

    def self.seconds(delay)
      delay ? [0, delay.seconds + (delay.nanos / 1e9)].max : 0
    end
    private_class_method :from_status, :details, :told, :seconds
  end
  private_constant :Errors
end
