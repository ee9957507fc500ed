"""The broker's side of client metrics (KIP-714): subscriptions, client instances, and payloads."""
