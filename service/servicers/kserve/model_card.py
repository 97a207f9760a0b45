"""What clients are told of a model: its tensors, and that one request has many responses."""

from importlib.metadata import version

from service.servicers.kserve.infer_request import VERSION
from service.servicers.kserve.tensor_specs import INPUTS, OUTPUTS, TensorSpec
from sluicegate.third_party.inference import grpc_service_pb2 as pb
from sluicegate.third_party.inference import model_config_pb2 as config_pb

SERVER_NAME = "sluicegate"
_TYPES = {
    "BYTES": config_pb.TYPE_STRING,
    "BOOL": config_pb.TYPE_BOOL,
    "FP32": config_pb.TYPE_FP32,
    "UINT32": config_pb.TYPE_UINT32,
}


def server_metadata() -> pb.ServerMetadataResponse:
    return pb.ServerMetadataResponse(
        name=SERVER_NAME, version=version("sluicegate"), extensions=["model_configuration", "statistics"]
    )


def model_metadata(name: str) -> pb.ModelMetadataResponse:
    return pb.ModelMetadataResponse(
        name=name,
        versions=[VERSION],
        platform=SERVER_NAME,
        inputs=map(_metadata, INPUTS),
        outputs=map(_metadata, OUTPUTS),
    )


def model_config(name: str) -> config_pb.ModelConfig:
    config = config_pb.ModelConfig(name=name, backend=SERVER_NAME, max_batch_size=0)
    for spec in INPUTS:
        config.input.add(name=spec.name, data_type=_TYPES[spec.datatype], dims=[spec.size], optional=spec.optional)
    for spec in OUTPUTS:
        config.output.add(name=spec.name, data_type=_TYPES[spec.datatype], dims=[spec.size])
    config.model_transaction_policy.decoupled = True
    return config


def _metadata(spec: TensorSpec) -> pb.ModelMetadataResponse.TensorMetadata:
    return pb.ModelMetadataResponse.TensorMetadata(name=spec.name, datatype=spec.datatype, shape=[spec.size])
