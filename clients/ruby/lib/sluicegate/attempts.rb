# frozen_string_literal: true

module Sluicegate
  # The attempts of one call: how many are left, and until when.
  class Attempts
    # The time of the deadline, one for all attempts; nil: none.
    attr_reader :deadline

    def initialize(timeout:, max_attempts:, on_wait:)
      @deadline = timeout && (Time.now + timeout)
      @left = max_attempts
      @on_wait = on_wait
    end

    # How many seconds to wait before the next attempt; nil: +error+ stands.
    def wait_after(error)
      @left -= 1
      return unless error.retry_after && @left.positive?

      # Those that were refused together should not come back together.
      wait = error.retry_after * rand(1.0..1.1)
      return unless in_time?(wait)

      @on_wait&.call(error, wait)
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
