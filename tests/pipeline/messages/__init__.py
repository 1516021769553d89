"""Messages of queues."""
