"""What the server tells of itself at /metrics: counted as it happens, put into words when somebody asks."""
