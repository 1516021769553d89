#!/usr/bin/env bash
# Builds deploy/Dockerfile without Docker, a registry or a daemon, with Debian's buildah, as root. The base image is a
# stand-in: Debian 12 with its own Python 3.11, from debootstrap, under the name that the Dockerfile has.
#
#   bash deploy/build-image.sh DIR      the image canal-ha in DIR/storage; show it with
#                                       buildah --root DIR/storage --storage-driver vfs images
#
# It proves that the Dockerfile's steps work; the image to ship is built by Docker, on the real base.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
directory=$(mkdir -p "${1:?a directory for the image}" && cd "$1" && pwd)
for program in buildah debootstrap; do
    if ! command -v "$program" >/dev/null; then
        printf 'build-image: %s is missing; next: bash deploy/install.sh image\n' "$program" >&2
        exit 1
    fi
done
base=$(sed -n 's/^FROM \(\S*\).*/\1/p' deploy/Dockerfile | sort -u)
root=$directory/base
storage=(--root "$directory/storage" --runroot "$directory/run" --storage-driver vfs)
export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs TMPDIR=$directory

if [[ ! -e $directory/base.complete ]]; then
    mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | grep -oE 'https?://[^] ]+/debian/?([[:space:]]|$)' |
        head -n 1 | tr -d '[:space:]' || true)
    rm -rf "$root"
    debootstrap --variant=minbase --include=ca-certificates,python3-pip,libpython3.11-dev,python3-setuptools,python3-wheel \
        bookworm "$root" ${mirror:+"$mirror"} >"$directory/debootstrap.log" 2>&1 ||
        { tail -n 15 "$directory/debootstrap.log" >&2 && exit 1; }
    rm -rf "$root"/var/cache/apt/archives/*.deb
    ln -s python3 "$root/usr/bin/python"
    # this Python is the image's own, as that of the real base is
    rm -f "$root"/usr/lib/python3*/EXTERNALLY-MANAGED
    # how this machine reaches packages
    cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
    [[ ! -e /etc/pip.conf ]] || cp /etc/pip.conf "$root/etc/pip.conf"
    touch "$directory/base.complete"
fi
container=$(buildah "${storage[@]}" from scratch)
buildah "${storage[@]}" add --quiet "$container" "$root" / >/dev/null
buildah "${storage[@]}" config --cmd python3 "$container"
buildah "${storage[@]}" commit --quiet --format docker "$container" "docker.io/library/$base" >/dev/null
buildah "${storage[@]}" rm "$container" >/dev/null
buildah "${storage[@]}" bud --pull-never --format docker --isolation chroot --network host \
    --ignorefile .dockerignore --file deploy/Dockerfile --tag canal-ha .
