"""Cloud controller manager for Kubernetes clusters whose nodes are Harvester virtual machines."""

__version__ = "0.1.0"
