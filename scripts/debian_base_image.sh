#!/usr/bin/env bash
# Makes a base image from Debian's packages alone, for places where no registry can be reached: Debian with Python, venv
# and CA certificates. Then: make image BASE_IMAGE=NAME
# SUITE is a release of Debian that gets security fixes, also for Python; trixie has Python 3.13.
# Needs root, debootstrap and ENGINE: a running docker or podman, or buildah. Where PIP_CERT names a file, the image trusts
# it for pip.

set -euo pipefail

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
  echo "Usage: $0 NAME [SUITE]" >&2
  exit 1
fi
name=$1 suite=${2:-trixie} engine=${ENGINE:-docker}
if ! command -v debootstrap >/dev/null; then
  echo "debootstrap is missing; on Debian: apt-get install debootstrap" >&2
  exit 1
fi
if [ "$(id -u)" != 0 ]; then
  echo "root is needed: debootstrap installs packages in a directory of its own" >&2
  exit 1
fi
root=$(mktemp -d)
trap 'rm -rf "$root" "$root.tar"' EXIT
chmod 0755 "$root"

debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates "$suite" "$root"
path=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
settings=("$path")
if [ -n "${PIP_CERT:-}" ]; then
  install -m 0644 "$PIP_CERT" "$root/etc/ssl/pip.crt"
  settings+=(PIP_CERT=/etc/ssl/pip.crt)
fi
# The size does not matter: the final image has only the files that the controller requires.
archive() { tar -C "$root" -c --numeric-owner --sort=name --exclude='./dev/*' --exclude='./proc/*' --exclude='./sys/*' .; }
if [ "$engine" = buildah ]; then
  container=$(buildah from scratch)
  archive >"$root.tar"
  buildah add --quiet "$container" "$root.tar" / >/dev/null
  buildah config "${settings[@]/#/--env=}" "$container"
  buildah commit --quiet --rm "$container" "$name"
else
  archive | "$engine" import --change "ENV ${settings[*]}" - "$name"
fi
