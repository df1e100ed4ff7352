"""The no-loss plane: sources, producer, shard assignor, low-water marks, provisioning. Knows nothing of webhooks."""
