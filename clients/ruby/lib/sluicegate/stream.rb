# frozen_string_literal: true

module Sluicegate
  # Events of a request as they come: one +started+, then deltas, then one +finished+ for each sequence. One thread
  # reads; any may cancel.
  class Stream
    include Enumerable

    # How the call ended, once +read+ has returned nil: +:OK+ or +:CANCELLED+.
    attr_reader :code

    # The block makes the call.
    def initialize(attempts, &start)
      @attempts = attempts
      @start = start
      @mutex = Mutex.new
      @cancelling = ConditionVariable.new
      @cancelled = false
      @answered = false
      start_attempt
    end

    # The next event; nil at the end, which is also where a stream ends after +cancel+. Raises Error.
    def read
      until @code
        begin
          event = Errors.readable { next_event }
          @answered = true
          return event
        rescue StopIteration
          @code = :OK
        rescue Error => e
          recover(e)
        end
      end
    end

    # Yields the events that have not been read yet. To leave the block early does not cancel the call.
    def each
      return enum_for(:each) unless block_given?

      while (event = read)
        yield event
      end
    end

    # Ends the call; the server drops the request.
    def cancel
      @mutex.synchronize do
        @cancelled = true
        @operation.cancel
        @cancelling.broadcast
      end
    end

    private

    def start_attempt
      operation = @start.call
      @mutex.synchronize { @operation = operation }
      # Cancelled between two attempts: there was no call yet to cancel.
      operation.cancel if @cancelled
      @events = operation.execute
    rescue GRPC::BadStatus => e
      # It has failed already; reading says so.
      @events = Enumerator.new { raise e }
    end

    def next_event
      @events.next
    rescue GRPC::Core::CallError
      # Of a call that ends on this side before its first message, gRPC 1.51 loses the status (grpc/grpc#33283).
      raise GRPC::Cancelled, 'cancelled' if @cancelled
      raise GRPC::DeadlineExceeded, 'Deadline Exceeded' if @attempts.late?

      raise GRPC::Unavailable, 'the call ended before the server began to answer'
    end

    # Begins anew after +error+, or raises it; neither once the stream is cancelled, whatever it failed with meanwhile.
    def recover(error)
      wait = @attempts.wait_after(error) unless @answered || @cancelled
      pause(wait) if wait
      return @code = :CANCELLED if @cancelled
      return start_attempt if wait

      # Unless it has ended already: a message that cannot be read does not end it.
      @operation.cancel
      @code = error.code
      raise error
    end

    def pause(seconds)
      wake = now + seconds
      @mutex.synchronize do
        @cancelling.wait(@mutex, wake - now) while !@cancelled && now < wake
      end
    end

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
