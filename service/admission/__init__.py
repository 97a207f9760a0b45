"""What is taken on and what is refused: bounds on requests, bytes and time."""
