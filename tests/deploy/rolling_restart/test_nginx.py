"""nginx passes calls on as they are; that it knows no health is in docs/load-balancing.md."""

import tempfile
from pathlib import Path

import pytest

from service.models import ModelFiles
from sluicegate_client import AsyncClient, InvalidRequestError
from tests.deploy.rolling_restart.other_proxies import nginxing
from tests.deploy.rolling_restart.replicas import Replicas


async def test_nginx_passes_streams_and_errors(byte_model: ModelFiles, tmp_path: Path) -> None:
    """Token by token, more than one to a message only where several have come; errors with their details."""
    with tempfile.TemporaryDirectory(prefix="sg") as folder:
        async with Replicas(byte_model, Path(folder), 0) as replicas:
            with nginxing(replicas.addresses, tmp_path) as address:
                async with AsyncClient(address) as client:
                    await client.wait_until_ready()
                    deltas = [delta async for delta in client.stream("hi", max_tokens=20, ignore_eos=True)]
                    assert len(deltas) > 10
                    whole = await client.generate("hi", max_tokens=20, ignore_eos=True)
                    assert "".join(delta.text for delta in deltas) == whole.outputs[0].text
                    with pytest.raises(InvalidRequestError) as raised:
                        await client.generate("hi", temperature=3)
                    assert [violation.field for violation in raised.value.violations] == ["sampling_params.temperature"]
