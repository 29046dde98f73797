"""Metrics and health of this process, and the HTTPS server for both."""
