#!/usr/bin/env bash
# Makes base images from Debian's packages alone, for places where no registry can be reached:
#   NAME        Debian with Python and CA certificates
#   NAME-build  the same with venv
# Then: docker build --build-arg BASE_IMAGE=NAME --build-arg BUILD_IMAGE=NAME-build .
# Needs root, debootstrap and a running Docker. Where PIP_CERT names a file, NAME-build trusts it for pip.

set -euo pipefail

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
  echo "Usage: $0 NAME [SUITE]" >&2
  exit 1
fi
name=$1 suite=${2:-bookworm}
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 0755 "$root"

# What Python needs nothing of: documentation, translations, package lists and archives.
pack() {
  tar -C "$root" -c --numeric-owner --sort=name \
    --exclude='./var/cache/*' --exclude='./var/lib/apt/lists/*' --exclude='./var/log/*' --exclude='./usr/share/doc/*' \
    --exclude='./usr/share/man/*' --exclude='./usr/share/locale/*' --exclude='./usr/share/info/*' \
    --exclude='./dev/*' --exclude='./proc/*' --exclude='./sys/*' --exclude='./tmp/*' --exclude='./run/*' . |
    docker import --change "$2" - "$1"
}

debootstrap --variant=minbase --include=python3,ca-certificates "$suite" "$root"
path='ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
pack "$name" "$path"
chroot "$root" apt-get install -y --no-install-recommends python3-venv
if [ -n "${PIP_CERT:-}" ]; then
  install -m 0644 "$PIP_CERT" "$root/etc/ssl/pip.crt"
  path="$path PIP_CERT=/etc/ssl/pip.crt"
fi
pack "$name-build" "$path"
