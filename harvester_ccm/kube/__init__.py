"""The Kubernetes protocol: credentials, requests, watches, Events and the Lease. Knows nothing of Harvester."""
