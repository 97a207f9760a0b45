from tests.service.conftest import byte_model

__all__ = ["byte_model"]
