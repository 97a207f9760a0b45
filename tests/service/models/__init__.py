"""service.models, module by module."""
