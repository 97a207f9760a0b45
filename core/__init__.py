"""The engine-core process: two IO threads, two queues, one busy loop."""
