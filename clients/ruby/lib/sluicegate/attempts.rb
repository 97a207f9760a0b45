# frozen_string_literal: true

module Sluicegate
  # The attempts of one call: how many are left, and until when.
  class Attempts
    # The time of the deadline, one for all attempts; nil: none.
    attr_reader :deadline

    def initialize(timeout:, max_attempts:, on_retry:)
      @deadline = timeout && (Time.now + timeout)
      @left = max_attempts
      @on_retry = on_retry
    end

    # How many seconds to wait before the next attempt; nil: +error+ stands.
    def wait_after(error)
      @left -= 1
      wait = error.retry_after
      return unless wait && @left.positive? && in_time?(wait)

      @on_retry&.call(error)
      wait
    end

    private

    # The server's own word on what is wrong says more than the deadline that would pass during the wait.
    def in_time?(wait)
      @deadline.nil? || Time.now + wait < @deadline
    end
  end
  private_constant :Attempts
end
