"""Tests of what is installed: chart, manifests, scripts, packages and documents."""
