"""The little of the OpenAI HTTP API that the tests need, without a library between them and the connection."""

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.interop.program import PATIENCE_S

Answer = dict[str, Any]


class ApiError(Exception):
    """Any answer but 200."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"HTTP {status}: {body}")
        self.status = status


class OpenAIApi:
    """Calls the server at ``port`` of this machine for ``model``."""

    def __init__(self, port: int, model: str) -> None:
        self.port = port
        self.model = model

    def complete(self, prompt: str | list[int], **options: Any) -> Answer:
        return self._call("/v1/completions", {"prompt": prompt, **options})

    def chat(self, messages: list[dict[str, str]], **options: Any) -> Answer:
        return self._call("/v1/chat/completions", {"messages": messages, **options})

    @contextmanager
    def stream_complete(self, prompt: str | list[int], **options: Any) -> Iterator[Iterator[Answer]]:
        """The events as they come; the connection closes with the block, however far they have come."""
        with self._stream("/v1/completions", {"prompt": prompt, **options}) as events:
            yield events

    @contextmanager
    def stream_chat(self, messages: list[dict[str, str]], **options: Any) -> Iterator[Iterator[Answer]]:
        with self._stream("/v1/chat/completions", {"messages": messages, **options}) as events:
            yield events

    def get(self, path: str) -> str:
        connection = self._connection()
        connection.request("GET", path)
        return _body(connection)

    def post(self, path: str, **fields: Any) -> str:
        """``fields`` as JSON, if there are any."""
        connection = self._connection()
        if fields:
            connection.request("POST", path, json.dumps(fields), {"Content-Type": "application/json"})
        else:
            connection.request("POST", path)
        return _body(connection)

    def _call(self, path: str, request: Answer) -> Answer:
        answer: Answer = json.loads(_body(self._send(path, request)))
        return answer

    @contextmanager
    def _stream(self, path: str, request: Answer) -> Iterator[Iterator[Answer]]:
        connection = self._send(path, {"stream": True, "stream_options": {"include_usage": True}, **request})
        try:
            # It has the socket from here on.
            with _checked(connection) as response:
                yield _events(response)
        finally:
            connection.close()

    def _send(self, path: str, request: Answer) -> http.client.HTTPConnection:
        connection = self._connection()
        body = json.dumps({"model": self.model, **request})
        connection.request("POST", path, body, {"Content-Type": "application/json", "Connection": "close"})
        return connection

    def _connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)


def _checked(connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
    response = connection.getresponse()
    if response.status != 200:
        raise ApiError(response.status, response.read().decode())
    return response


def _body(connection: http.client.HTTPConnection) -> str:
    try:
        return _checked(connection).read().decode()
    finally:
        connection.close()


def _events(response: http.client.HTTPResponse) -> Iterator[Answer]:
    """Server-sent events up to [DONE]. Raises http.client.HTTPException if the connection ends before."""
    while line := response.readline():
        if line.startswith(b"data: "):
            data = line.removeprefix(b"data: ").strip()
            if data == b"[DONE]":
                return
            yield json.loads(data)
    raise http.client.IncompleteRead(b"")
