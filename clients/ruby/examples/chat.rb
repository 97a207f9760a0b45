# frozen_string_literal: true

# Talks with the model: each line of standard input is a question, whose answer is written as it comes.
# SLUICEGATE_ADDRESS says where the server is, SLUICEGATE_TLS_CA and SLUICEGATE_API_KEY how to get in.

require 'sluicegate'

def answer(client, request)
  answer = +''
  client.generate_stream(request, max_attempts: 5) do |event|
    next unless event.delta

    print event.delta.text
    $stdout.flush
    answer << event.delta.text
  end
  puts
  answer
end

def message(role, content)
  Sluicegate::V1::ChatMessage.new(role: role, content: content)
end

ca, key = %w[SLUICEGATE_TLS_CA SLUICEGATE_API_KEY].map { |name| ENV.fetch(name, '') }
client = Sluicegate::Client.new(
  ENV.fetch('SLUICEGATE_ADDRESS', '127.0.0.1:50051'),
  credentials: (Sluicegate.tls_credentials(ca: ca) unless ca.empty?),
  api_key: (key unless key.empty?)
)
request = Sluicegate::V1::GenerateRequest.new(
  chat: Sluicegate::V1::Chat.new,
  sampling_params: Sluicegate::V1::SamplingParams.new(max_tokens: 512)
)
begin
  print '> '
  $stdin.each_line(chomp: true) do |question|
    request.chat.messages << message('user', question)
    request.chat.messages << message('assistant', answer(client, request))
    print '> '
  end
  puts
rescue Sluicegate::Error => e
  abort "chat: #{e.message}"
end
