"""What is known of a call while it runs, whoever watches: metrics, the log, traces."""
