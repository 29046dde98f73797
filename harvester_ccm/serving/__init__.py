"""What this process tells about itself over HTTPS: health, readiness and metrics, and who may ask."""
