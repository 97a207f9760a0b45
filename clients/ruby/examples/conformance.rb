# frozen_string_literal: true

# The calls of clients/conformance/README.md, whose lines it prints.

require 'sluicegate'

# One method for each line.
class Conformance
  include Sluicegate

  LINES = %i[unary tokens stream overload cancel deadline invalid unknown_model tls no_key untrusted].freeze

  def initialize(address, tls_address, ca, key)
    @client = Client.new(address)
    @tls_address = tls_address
    @ca = ca
    @key = key
  end

  def run
    LINES.each { |line| send(line) }
  end

  private

  def unary
    response = @client.generate(france)
    output = response.outputs.first
    puts "unary: \"#{output.text}\" #{name(output.finish_reason)}, " \
         "#{response.usage.num_prompt_tokens} prompt tokens, #{response.usage.num_output_tokens} output tokens"
  end

  def tokens
    request = V1::TokenizeRequest.new(text: 'Grüße, 世界 🙂', add_special_tokens: false)
    back = V1::DetokenizeRequest.new(token_ids: @client.tokenize(request).token_ids.to_a)
    puts "tokens: \"#{@client.detokenize(back).text}\" comes back"
  end

  def stream
    question = V1::ChatMessage.new(role: 'user', content: 'What is the capital of France? Answer in one sentence.')
    request = V1::GenerateRequest.new(chat: V1::Chat.new(messages: [question]),
                                      sampling_params: V1::SamplingParams.new(temperature: 0, max_tokens: 32))
    events = @client.generate_stream(request).to_a
    finished = events.last.finished
    puts "stream: #{events.first.started.num_prompt_tokens} prompt tokens, " \
         "\"#{events.filter_map(&:delta).map(&:text).join}\", " \
         "#{name(finished.finish_reason)}, #{finished.usage.num_output_tokens} output tokens"
  end

  def overload
    stream = @client.generate_stream(endless(300, n: 4, temperature: 1))
    read_deltas(stream, 1)
    error = error_of { @client.generate(france) }
    puts "overload: #{error.code} #{error.reason}#{', to be retried' if error.retry_after}"
    again
    stream.each { |_event| nil }
  end

  def again
    refusals = 0
    response = @client.generate(france, timeout: 120, max_attempts: 1000, on_wait: ->(*) { refusals += 1 })
    raise 'the call was not refused' if refusals.zero?

    puts "retry: \"#{response.outputs.first.text}\" after a refusal"
  end

  def cancel
    stream = @client.generate_stream(endless(2000))
    read_deltas(stream, 3)
    stream.cancel
    stream.each { |_event| nil }
    puts "cancel: #{stream.code} after 3 deltas"
  end

  def deadline
    puts "deadline: #{error_of { @client.generate(endless(2000), timeout: 0.2) }.code}"
  end

  def invalid
    error = error_of { @client.generate(france(top_p: 3, max_tokens: 0)) }
    puts "invalid: #{error.code} #{error.reason}"
    error.violations.each { |each| puts "invalid: #{each.field}: #{each.description}" }
  end

  def unknown_model
    request = france
    request.model = 'no-such-model'
    error = error_of { @client.generate(request) }
    puts "unknown model: #{error.code} #{error.reason}"
  end

  def tls
    puts "tls: \"#{tls_client(@ca, @key).generate(france).outputs.first.text}\" with a key"
  end

  def no_key
    error = error_of { tls_client(@ca, nil).generate(france) }
    puts "no key: #{error.code} #{error.reason}"
  end

  def untrusted
    puts "untrusted: #{error_of { tls_client(nil, @key).generate(france) }.code}"
  end

  def tls_client(ca, key)
    Client.new(@tls_address, credentials: Sluicegate.tls_credentials(ca: ca), api_key: key)
  end

  def france(**params)
    generation(temperature: 0, max_tokens: 2, **params)
  end

  def endless(max_tokens, **params)
    generation(ignore_eos: true, max_tokens: max_tokens, **params)
  end

  def generation(**params)
    V1::GenerateRequest.new(text: 'The capital of France is', sampling_params: V1::SamplingParams.new(**params))
  end

  def read_deltas(stream, number)
    until number.zero?
      event = stream.read or raise 'the stream ended early'
      number -= 1 if event.delta
    end
  end

  def error_of
    yield
  rescue Error => e
    e
  else
    raise 'a call went well that should have failed'
  end

  def name(finish_reason)
    finish_reason.to_s.delete_prefix('FINISH_REASON_')
  end
end

$stdout.sync = true
begin
  Conformance.new(*%w[SLUICEGATE_ADDRESS SLUICEGATE_TLS_ADDRESS SLUICEGATE_TLS_CA SLUICEGATE_API_KEY]
    .map { |variable| ENV.fetch(variable) }).run
rescue StandardError => e
  abort "conformance: #{e.message}"
end
