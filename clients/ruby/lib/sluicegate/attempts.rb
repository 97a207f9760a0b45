# frozen_string_literal: true

module Sluicegate
  # The attempts of one call: how many have failed, and until when there may be more.
  class Attempts
    FIRST_BACKOFF = 0.2
    # More than any wait takes, and few enough for a float.
    MOST_DOUBLINGS = 60
    private_constant :FIRST_BACKOFF, :MOST_DOUBLINGS

    # The time of the deadline, one for all attempts; nil: none.
    attr_reader :deadline

    def initialize(timeout:, max_attempts:, max_wait:, on_wait:)
      @deadline = timeout && (Time.now + timeout)
      @max_attempts = max_attempts
      @max_wait = max_wait
      @on_wait = on_wait
      @failed = 0
    end

    # How many seconds to wait before the next attempt; nil: +error+ stands.
    def wait_after(error)
      @failed += 1
      return if @failed >= @max_attempts

      wait = wait_for(error)
      return unless wait && in_time?(wait)

      @on_wait&.call(error, wait)
      wait
    end

    # Whether the deadline has passed.
    def late?
      !@deadline.nil? && Time.now >= @deadline
    end

    private

    # What the server asks for, or where it does not say when, or there was none, a backoff that doubles. Part of it is
    # random: those that were refused together should not come back together.
    def wait_for(error)
      asked = error.retry_after
      return if asked.nil? && error.code != :UNAVAILABLE
      return (asked * rand(1.0..1.1) if asked <= @max_wait) if asked&.positive?

      [FIRST_BACKOFF * 2.0**[@failed - 1, MOST_DOUBLINGS].min, @max_wait].min * rand(0.5..1.0)
    end

    # The server's own word on what is wrong says more than the deadline that would pass during the wait.
    def in_time?(wait)
      @deadline.nil? || Time.now + wait < @deadline
    end
  end
  private_constant :Attempts
end
