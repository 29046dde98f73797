#!/usr/bin/env bash
# Makes a base image from Debian's packages alone, for places where no registry can be reached: Debian with Python, venv
# and CA certificates. Then: docker build --build-arg BASE_IMAGE=NAME .
# Needs root, debootstrap and a running Docker. Where PIP_CERT names a file, the image trusts it for pip.

set -euo pipefail

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
  echo "Usage: $0 NAME [SUITE]" >&2
  exit 1
fi
name=$1 suite=${2:-bookworm}
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 0755 "$root"

debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates "$suite" "$root"
path='ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
if [ -n "${PIP_CERT:-}" ]; then
  install -m 0644 "$PIP_CERT" "$root/etc/ssl/pip.crt"
  path="$path PIP_CERT=/etc/ssl/pip.crt"
fi
# Nothing of it is kept but what the program needs, so it may be as large as it is.
tar -C "$root" -c --numeric-owner --sort=name --exclude='./dev/*' --exclude='./proc/*' --exclude='./sys/*' . |
  docker import --change "$path" - "$name"
