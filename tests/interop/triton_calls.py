"""What a user of the stock tritonclient does; run in its environment: ``python triton_calls.py ADDRESS MODEL CALL``.

Prints one JSON document. Only what tritonclient brings along may be imported here.
"""

import json
import queue
import sys

import numpy as np
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

TIMEOUT_S = 120
GREEDY = {"temperature": "0", "max_tokens": "8", "ignore_eos": "true"}
RETURNED = (
    "return_finish_reason",
    "return_cumulative_logprob",
    "return_logprobs",
    "return_num_input_tokens",
    "return_num_output_tokens",
)


def inputs_of(text, sampling=None, **flags):
    tensors = [("text_input", "BYTES", np.array([text.encode()], dtype=np.object_))]
    if sampling is not None:
        tensors.append(("sampling_parameters", "BYTES", np.array([json.dumps(sampling).encode()], dtype=np.object_)))
    tensors += [(name, "BOOL", np.array([value], dtype=bool)) for name, value in flags.items()]
    inputs = []
    for name, datatype, array in tensors:
        tensor = triton.InferInput(name, [1], datatype)
        tensor.set_data_from_numpy(array)
        inputs.append(tensor)
    return inputs


def outputs_of(result):
    response = result.get_response()
    arrays = {output.name: result.as_numpy(output.name) for output in response.outputs}
    return {name: [_plain(element) for element in array.tolist()] for name, array in arrays.items()}


def _plain(element):
    return element.decode() if isinstance(element, bytes) else element


def about(client, model):
    config = client.get_model_config(model).config
    return {
        "live": client.is_server_live(),
        "ready": client.is_server_ready(),
        "model_ready": client.is_model_ready(model),
        "other_ready": client.is_model_ready("other"),
        "server": client.get_server_metadata().name,
        "inputs": [tensor.name for tensor in client.get_model_metadata(model).inputs],
        "decoupled": config.model_transaction_policy.decoupled,
        "repository": [entry.state for entry in client.get_model_repository_index().models],
        "statistics": client.get_inference_statistics(model).model_stats[0].name,
    }


def infer(client, model):
    returned = dict.fromkeys(RETURNED, True)
    prompt = "The capital of France is"
    full = client.infer(model, inputs_of(prompt, GREEDY | {"logprobs": "1"}, **returned), request_id="r1")
    bare = client.infer(model, inputs_of(prompt, exclude_input_in_output=True), parameters={"max_tokens": 4})
    several = client.infer(model, inputs_of(prompt, GREEDY | {"n": 3, "temperature": 1, "seed": 7}, **returned))
    return {
        "id": full.get_response().id,
        "full": outputs_of(full),
        "bare": outputs_of(bare),
        "several": outputs_of(several),
    }


def stream(client, model):
    """Three requests at once on one stream; a fourth is wrong, and only that."""
    prompts = {"a": "The capital of France is", "b": "Once upon a time", "c": "2 + 2 ="}
    results = queue.Queue()
    client.start_stream(callback=lambda result, error: results.put((result, error)))
    flags = {"stream": True, "return_finish_reason": True, "return_num_output_tokens": True}
    for name, prompt in prompts.items():
        inputs = inputs_of(prompt, GREEDY, **flags)
        client.async_stream_infer(model, inputs, request_id=name, enable_empty_final_response=True)
    client.async_stream_infer(model, inputs_of("x", {"top_p": 3}, stream=True), request_id="wrong")
    texts, counts, reasons, errors, open_requests = {}, {}, {}, [], set(prompts)
    while open_requests or not errors:
        result, error = results.get(timeout=TIMEOUT_S)
        if error is not None:
            errors.append(error.message())
            continue
        response = result.get_response()
        if response.parameters["triton_final_response"].bool_param:
            assert not response.outputs
            open_requests.remove(response.id)
            continue
        outputs = outputs_of(result)
        texts[response.id] = texts.get(response.id, "") + outputs["text_output"][0]
        counts[response.id] = counts.get(response.id, 0) + outputs["num_output_tokens"][0]
        reasons[response.id] = outputs["finish_reason"][0]
    client.stop_stream()
    return {"prompts": prompts, "texts": texts, "counts": counts, "reasons": reasons, "errors": errors}


def fail(client, model):
    """What tritonclient raises."""
    failures = []
    for name, inputs in (("other", inputs_of("x")), (model, inputs_of("x", "[1]")), (model, inputs_of(""))):
        try:
            client.infer(name, inputs)
        except InferenceServerException as error:
            failures.append([error.status(), error.message()])
    return failures


def cancel(client, model):
    """A stream that is given up with two long requests on it, and one call."""
    results = queue.Queue()
    client.start_stream(callback=lambda result, error: results.put((result, error)))
    endless = GREEDY | {"max_tokens": "4000"}
    for name in ("a", "b"):
        client.async_stream_infer(model, inputs_of("Once upon a time", endless, stream=True), request_id=name)
    result, error = results.get(timeout=TIMEOUT_S)
    assert error is None
    client.stop_stream(cancel_requests=True)
    answers = queue.Queue()
    inputs = inputs_of("Once upon a time", endless)
    call = client.async_infer(model, inputs, callback=lambda result, error: answers.put((result, error)))
    call.cancel()
    _, error = answers.get(timeout=TIMEOUT_S)
    return {"first": result.get_response().id, "status": error.status()}


def main(address, model, call):
    with triton.InferenceServerClient(address) as client:
        print(json.dumps(globals()[call](client, model)))


if __name__ == "__main__":
    main(*sys.argv[1:])
