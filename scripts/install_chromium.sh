#!/usr/bin/env bash
# Put a Chromium for the tests of the page at the path that is given: one that is there, else Debian's.
# Without root Debian's packages are unpacked beside that path, and nothing of the system is touched.
set -euo pipefail
target=$1

for name in "${SLIR_CHROMIUM:-}" chromium chromium-browser google-chrome google-chrome-stable; do
    if [ -n "$name" ] && found=$(command -v "$name"); then
        ln -sfn "$found" "$target"
        exit
    fi
done

if ! command -v apt-get >/dev/null; then
    echo "The tests of the page need Chromium. Install it, or say where it is: make test SLIR_CHROMIUM=/path/to/chromium" >&2
    exit 1
fi

echo "installing Chromium for the tests of the page"
if [ "$(id -u)" = 0 ]; then
    apt-get -qq update
    DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends chromium >/dev/null
    ln -sfn "$(command -v chromium)" "$target"
    exit
fi

root=$(realpath -m "$target-files")
rm -rf "$root"
mkdir -p "$root/apt/lists/partial" "$root/apt/archives/partial"
apt() { apt-get -qq -o Dir::State::Lists="$root/apt/lists" -o Dir::Cache="$root/apt" "$@"; }
apt update
packages=$(apt install --simulate --no-install-recommends chromium | awk '$1 == "Inst" {print $2}')
# shellcheck disable=SC2086  # a list of names
(cd "$root/apt/archives" && apt download $packages)
for package in "$root"/apt/archives/*.deb; do dpkg-deb --extract "$package" "$root"; done
rm -rf "$root/apt"
libraries=$(find "$root" -name '*.so*' -printf '%h\n' | sort -u | paste -sd:)
cat >"$root/run" <<END
#!/bin/sh
[ -e /etc/fonts/fonts.conf ] || export FONTCONFIG_SYSROOT="$root"
LD_LIBRARY_PATH="$libraries\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}" exec "$root/usr/lib/chromium/chromium" "\$@"
END
chmod +x "$root/run"
ln -sfn "$root/run" "$target"
