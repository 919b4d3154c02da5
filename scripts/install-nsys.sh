#!/usr/bin/env bash
# Unpack Debian's Nsight Systems 2023.4.4 (trixie, non-free) into .nsys/, without installing it.
# It profiles, exports and summarises on a machine without a GPU: for CI and for developers.
#
#   scripts/install-nsys.sh              then: export TRACEBOOK_NSYS="$PWD/.nsys/nsys"
#   scripts/install-nsys.sh --recipes    also a Python for `nsys recipe`, in .nsys/python: it needs
#                                        3.11 or older, and that folder's bin first on PATH
#
# Running it again does nothing where .nsys/nsys works. Only apt is asked, at the mirror that
# it is set up with, through lists of its own: the system's sources stay as they are.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly PLACE="$PWD/.nsys"
readonly SUITE=trixie
readonly PACKAGES=(nsight-systems nsight-systems-target)
# What the importer of a report loads; *t64 is what newer releases call some of them.
readonly LIBRARIES=(libssh-4 libnss3 libglib2.0-0 libxkbcommon0 libgl1 libegl1 libopengl0
  libxtst6 libxcomposite1 libxdamage1 libasound2)

fail() {
  printf 'install-nsys: %s\n' "$@" >&2
  exit 1
}

works() { [ -x "$PLACE/nsys" ] && "$PLACE/nsys" --version >/dev/null 2>&1 && [ -z "$(lacking)" ]; }

# Shared libraries that the importer asks for and the machine lacks.
lacking() {
  local program
  program=$(importer)
  [ -n "$program" ] || return 0
  LD_LIBRARY_PATH="$(dirname "$program")" ldd "$program" 2>/dev/null |
    awk '/not found/ { print $1 }' | sort -u
}

importer() { find "$PLACE/root" -name QdstrmImporter -type f 2>/dev/null | head -n 1; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

own_apt() {
  apt-get -qq -o Dir::Etc::SourceList="$PLACE/apt/sources.list" -o Dir::Etc::SourceParts=- \
    -o Dir::State="$PLACE/apt/state" -o Dir::Cache="$PLACE/apt/cache" \
    -o APT::Sandbox::User="$(id -un)" "$@"
}

fetch() {
  local mirror package
  mirror=$(apt-get indextargets --format '$(REPO_URI)' | grep '/debian/$' | head -n 1 || true)
  [ -n "$mirror" ] || fail "apt has no Debian mirror configured, so there is nowhere to ask." \
    "Install Nsight Systems yourself and set TRACEBOOK_NSYS."
  mkdir -p "$PLACE/apt/state/lists/partial" "$PLACE/apt/cache/archives/partial" "$PLACE/deb"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $SUITE non-free" \
    >"$PLACE/apt/sources.list"
  own_apt update || fail "apt cannot read $SUITE non-free at its mirror (see above)."
  for package in "${PACKAGES[@]}"; do
    (cd "$PLACE/deb" && own_apt download "$package") ||
      fail "$package is not in $SUITE non-free for this architecture ($(dpkg --print-architecture))."
  done
}

unpack() {
  local deb
  rm -rf "$PLACE/root.part"
  mkdir -p "$PLACE/root.part"
  for deb in "$PLACE"/deb/*.deb; do
    dpkg -x "$deb" "$PLACE/root.part" || fail "$deb cannot be unpacked: is the disk full?"
  done
  rm -rf "$PLACE/root" "$PLACE/deb" "$PLACE/apt"
  mv "$PLACE/root.part" "$PLACE/root"
}

# nsys looks for its importer and reports beside the place where the binary really is, and the
# package points at the system's libssh and Python modules from where it would be installed.
link() {
  local target host module
  target=$(dirname "$(find "$PLACE/root" -path '*/target-linux-*/nsys' -type f | head -n 1)")
  host=$(dirname "$(importer)")
  [ -e "$(dirname "$target")/$(basename "$host")" ] ||
    ln -s "$host" "$(dirname "$target")/$(basename "$host")"
  for module in "$target"/python/lib/*.py; do
    ln -sf "$module" "$host/python/lib/"
  done
  ln -sf "$target/nsys" "$PLACE/nsys"
}

link_libssh() {
  local system
  system=$(/sbin/ldconfig -p | awk '/libssh\.so\.4 / { print $NF; exit }')
  [ -z "$system" ] || ln -sf "$system" "$(dirname "$(importer)")/libssh.so.4"
}

install_libraries() {
  local name wanted=()
  link_libssh
  [ -n "$(lacking)" ] || return 0
  for name in "${LIBRARIES[@]}"; do
    if apt-cache show "${name}t64" >/dev/null 2>&1; then wanted+=("${name}t64"); else wanted+=("$name"); fi
  done
  as_root apt-get -qq update || true
  as_root apt-get -qq install --no-install-recommends -y "${wanted[@]}" >/dev/null ||
    fail "nsys is in $PLACE, but its importer lacks libraries and apt cannot install them:" \
      "  ${wanted[*]}"
  link_libssh
  [ -z "$(lacking)" ] || fail "The importer still lacks: $(lacking | tr '\n' ' ')"
}

# Recipes look for a folder that the package leaves out, and import asyncore, gone from 3.12 on.
prepare_recipes() {
  local packages python
  packages=$(find "$PLACE/root" -type d -name nsys_recipe | head -n 1)
  mkdir -p "$packages/third_party"
  [ "${1:-}" = --recipes ] || return 0
  "$PLACE/python/bin/python3" -c 'import numpy, pandas, psutil, pyarrow' 2>/dev/null && return 0
  python=$(command -v python3.11 || command -v python3.10) ||
    fail "Recipes need Python 3.11 or older, and none is on PATH."
  "$python" -m venv --clear "$PLACE/python" ||
    fail "$python cannot make an environment in $PLACE/python; run the script again."
  "$PLACE/python/bin/python3" -m pip install --quiet --disable-pip-version-check \
    numpy 'pandas<3' psutil pyarrow || fail "pip cannot install numpy, pandas, psutil and pyarrow."
}

if works; then
  prepare_recipes "${1:-}"
  echo "$PLACE/nsys is there: $("$PLACE/nsys" --version)"
  exit 0
fi
command -v apt-get >/dev/null || fail "apt-get is missing: this script is for Debian and its kin." \
  "Install Nsight Systems yourself and set TRACEBOOK_NSYS."
if [ ! -d "$PLACE/root" ]; then
  fetch
  unpack
fi
install_libraries
link
prepare_recipes "${1:-}"
works || fail "$PLACE/nsys does not run: $("$PLACE/nsys" --version 2>&1 | tail -n 1)"
echo "$PLACE/nsys is ready: $("$PLACE/nsys" --version)"
