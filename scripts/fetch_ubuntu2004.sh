#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Ubuntu 20.04 with Python in FOLDER, to try programs in, on a Debian with a network, as root:
#   scripts/fetch_ubuntu2004.sh FOLDER
# Does nothing where it is there.
source "$(dirname "$0")/common.sh"

if (($# != 1)) || [[ $1 == -* ]]; then
  echo "usage: $0 FOLDER" >&2
  exit 2
fi
[[ -d $1 ]] && exit
if ((EUID != 0)) || ! command -v debootstrap >/dev/null; then
  echo "This needs root and debootstrap, of Debian or Ubuntu." >&2
  exit 1
fi
mkdir -p "$(dirname "$1")"
folder=$(realpath "$1")
# The archive that debootstrap would take.
archive=$(
  ARCH=amd64 SUITE=focal
  default_mirror() { echo "$1" && exit; }
  source "${DEBOOTSTRAP_DIR:-/usr/share/debootstrap}/scripts/focal"
)

# Debian has not the keys that Ubuntu's packages are signed with; those of 790BC7277767219C42C86F933B4FE6ACC0B21F32 and
# F6ECB3762474EDA9D21B7022871920D1991BC93C are in this package of Ubuntu's.
keyring=pool/main/u/ubuntu-keyring/ubuntu-keyring_2020.02.11.4_all.deb
keyring_sha256=2684fae16e90a9ff3cb4dc08a8af5bd9973d38763b60e5f458dea0b403a39788

fetch() {
  rm -rf "$folder.keys" "$folder.part"
  mkdir "$folder.keys" &&
    python3 -c 'import sys, urllib.request; urllib.request.urlretrieve(*sys.argv[1:])' \
      "$archive/$keyring" "$folder.keys/keyring.deb" &&
    sha256sum --check --quiet <<<"$keyring_sha256  $folder.keys/keyring.deb" &&
    dpkg-deb -x "$folder.keys/keyring.deb" "$folder.keys" &&
    debootstrap --variant=minbase --include=python3 \
      --keyring="$folder.keys/usr/share/keyrings/ubuntu-archive-keyring.gpg" focal "$folder.part" "$archive" &&
    rm -rf "$folder.keys" && mv "$folder.part" "$folder"
}

fetch >"$folder.log" 2>&1 || { tail -n 20 "$folder.log" >&2; exit 1; }
