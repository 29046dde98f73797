"""Kubernetes for asyncio: credentials, requests, informers, work queues, Events, and a Lease with a write fence."""
