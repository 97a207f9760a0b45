"""vLLM's EngineCore wire, v0.25.1: messages, codec and handshake; the only part of ``core`` the gateway imports."""
