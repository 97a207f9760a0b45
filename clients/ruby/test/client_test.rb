# frozen_string_literal: true

require 'minitest/autorun'
require 'sluicegate'
require_relative 'fake_server'
require_relative 'garbage_server'

# Errors, retries and cancelling, against a server in this process that answers as each test says.
class ClientTest < Minitest::Test
  REQUEST = Sluicegate::V1::GenerateRequest.new
  Codes = GRPC::Core::StatusCodes

  def setup
    @server = FakeServer.new
    @client = Sluicegate::Client.new(@server.address, api_key: 'sesame')
  end

  def teardown
    @client.close
    @server.stop
  end

  # An error carries the code, the message and all details of the server, and its class says what it is.
  def test_errors_have_details
    refuse(1, Codes::INVALID_ARGUMENT, 1.5)
    error = assert_raises(Sluicegate::InvalidRequestError) { @client.generate(REQUEST) }
    assert_equal [:INVALID_ARGUMENT, 'refused', 'QUEUE_FULL', 1.5],
                 [error.code, error.message, error.reason, error.retry_after]
    assert_equal [Sluicegate::Violation.new('sampling_params.top_p', 'must be in (0, 1], got 3.0')], error.violations
    assert_kind_of GRPC::InvalidArgument, error.cause
  end

  # Details that cannot be read are left out.
  def test_details_may_be_garbage
    @server.refusals = 2
    FakeServer.garbled.each do |garbled|
      @server.refusal = garbled
      error = assert_raises(Sluicegate::OverloadedError) { @client.generate(REQUEST) }
      assert_equal ['full', ''], [error.message, error.reason]
    end
  end

  # A server that says "again", but not when, or that is away, is asked less and less often.
  def test_waits_double_where_nobody_says
    [FakeServer.refusal(Codes::RESOURCE_EXHAUSTED, 0), FakeServer.refusal(Codes::RESOURCE_EXHAUSTED, -5),
     FakeServer.refusal(Codes::UNAVAILABLE)].each do |refusal|
      @server.refusals = 100
      @server.refusal = refusal
      waits = []
      assert_raises(Sluicegate::Error) do
        @client.generate(REQUEST, max_attempts: 4, max_wait: 0.35, on_wait: ->(_, wait) { waits << wait })
      end
      assert_equal [true] * 3, waits.zip([0.1..0.2, 0.17..0.35, 0.17..0.35]).map { |wait, range| range.cover?(wait) }
    end
  end

  # A server that asks for a longer wait than max_wait is not waited for.
  def test_waits_are_bounded
    [31, 2**62].each do |asked|
      refuse(100, Codes::RESOURCE_EXHAUSTED, asked)
      assert_raises(Sluicegate::OverloadedError) { @client.generate(REQUEST, max_attempts: 5) }
    end
    assert_equal 2, @server.calls
  end

  # Without RetryInfo there is one attempt.
  def test_without_retry_info_an_error_is_final
    refuse(100, Codes::INTERNAL)
    error = assert_raises(Sluicegate::InternalError) { @client.generate(REQUEST, max_attempts: 5) }
    assert_nil error.retry_after
    assert_equal 1, @server.calls
  end

  # A server that is not there is tried again, and makes an error without details.
  def test_no_server
    client = Sluicegate::Client.new('127.0.0.1:1')
    waits = 0
    error = assert_raises(Sluicegate::UnavailableError) do
      client.generate(REQUEST, max_attempts: 3, max_wait: 0.01, on_wait: ->(*) { waits += 1 })
    end
    assert_equal ['', [], nil, 2], [error.reason, error.violations, error.retry_after, waits]
  end

  # A refused call is made again until it is answered, and on_wait sees each refusal.
  def test_refused_calls_are_retried
    @server.refusals = 2
    seen = []
    response = @client.generate(REQUEST, timeout: 60, max_attempts: 3, on_wait: ->(e, _) { seen << e.reason })
    assert_equal 'Paris', response.outputs.first.text
    assert_equal %w[QUEUE_FULL QUEUE_FULL], seen
  end

  # Retries end with the attempts; by default there is one.
  def test_attempts_are_bounded
    @server.refusals = 100
    assert_raises(Sluicegate::OverloadedError) { @client.generate(REQUEST, max_attempts: 3) }
    assert_equal 3, @server.calls
    assert_raises(Sluicegate::OverloadedError) { @client.generate(REQUEST) }
    assert_equal 4, @server.calls
  end

  # A wait that would pass the deadline is not begun: the refusal is what the caller gets.
  def test_retries_keep_the_deadline
    refuse(100, Codes::UNAVAILABLE, 3600)
    assert_raises(Sluicegate::UnavailableError) { @client.generate(REQUEST, timeout: 60, max_attempts: 5) }
    assert_equal 1, @server.calls
  end

  # A stream is begun again as long as nothing of it has come.
  def test_refused_streams_are_retried
    @server.refusals = 2
    assert_equal ['Paris'], @client.generate_stream(REQUEST, max_attempts: 3).map { |event| event.delta.text }
  end

  # Once a message has come, an error ends the stream.
  def test_begun_streams_are_not_retried
    @server.after_first = FakeServer.refusal(Codes::UNAVAILABLE, 0.001)
    stream = @client.generate_stream(REQUEST, max_attempts: 5)
    assert_equal 'Paris', stream.read.delta.text
    assert_raises(Sluicegate::UnavailableError) { stream.read }
    assert_equal 1, @server.calls
  end

  # Cancelling ends a stream without an error, also one that waits for its next attempt.
  def test_cancel_ends_the_wait
    refuse(100, Codes::UNAVAILABLE, 3600)
    stream = nil
    stream = @client.generate_stream(REQUEST, max_attempts: 5, max_wait: 3600, on_wait: ->(*) { stream.cancel })
    assert_nil stream.read
    assert_equal [:CANCELLED, 1], [stream.code, @server.calls]
  end

  # A stream that ends before its first message has a code all the same.
  def test_streams_that_end_unanswered
    @server.silent = true
    stream = @client.generate_stream(REQUEST)
    stream.cancel
    assert_equal [[], :CANCELLED], [stream.to_a, stream.code]
    assert_raises(Sluicegate::DeadlineExceededError) { @client.generate_stream(REQUEST, timeout: 0.05).read }
  end

  # An answer that is no message is a fault of the server, too.
  def test_answers_may_be_garbage
    server = GarbageServer.new
    client = Sluicegate::Client.new(server.address)
    assert_equal :INTERNAL, assert_raises(Sluicegate::InternalError) { client.generate(REQUEST) }.code
    assert_equal :INTERNAL, assert_raises(Sluicegate::InternalError) { client.generate_stream(REQUEST).read }.code
  ensure
    client&.close
    server&.stop
  end

  # To leave the block early cancels the call at the server.
  def test_leaving_the_block_cancels
    @server.endless = true
    @client.generate_stream(REQUEST) { break }
    assert @server.dropped.pop
  end

  # The key goes along as a bearer token.
  def test_the_key_is_sent
    @client.generate(REQUEST)
    assert_equal 'Bearer sesame', @server.authorization
  end

  private

  def refuse(number, code, retry_after = nil)
    @server.refusals = number
    @server.refusal = FakeServer.refusal(code, retry_after)
  end
end
