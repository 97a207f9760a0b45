# frozen_string_literal: true

require 'grpc'
require 'sluicegate/v1/inference_service_services_pb'

require 'sluicegate/error'
require 'sluicegate/attempts'
require 'sluicegate/channel'
require 'sluicegate/stream'
require 'sluicegate/client'
