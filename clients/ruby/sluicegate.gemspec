# frozen_string_literal: true

Gem::Specification.new do |spec|
  spec.name = 'sluicegate'
  spec.version = '0.1.0'
  spec.summary = 'Client of Sluicegate, a gRPC service for inference with language models'
  spec.authors = ['Sluicegate']
  spec.license = 'Apache-2.0'
  spec.required_ruby_version = '>= 3.0'
  # The messages in build/generated are what `make` has generated.
  spec.files = Dir['lib/**/*.rb', 'build/generated/**/*.rb', 'README.md']
  spec.require_paths = ['lib', 'build/generated']
  spec.add_dependency 'googleapis-common-protos-types', '~> 1.4'
  spec.add_dependency 'grpc', '~> 1.51'
end
