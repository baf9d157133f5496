#!/usr/bin/env bash
# See to it that PyQt6 starts without a screen: scripts/install_qt_libraries.sh PYTHON FILE
# FILE is for a shell to read before Qt is used. It says nothing where the system has all libraries that Qt's wheels
# expect of it, or gets them as root. Without root Debian's packages are unpacked beside FILE, nothing of the system is
# touched, and FILE says where they are.
set -euo pipefail
python=$1
target=$2
packages="libgl1 libegl1 libxkbcommon0 libdbus-1-3 libfontconfig1 libglib2.0-0"

starts() {
    QT_QPA_PLATFORM=offscreen "$python" -c "import OpenGL.GL; from PyQt6.QtWidgets import QApplication; QApplication([])" 2>/dev/null
}

if starts; then
    : >"$target"
    exit
fi

if ! command -v apt-get >/dev/null; then
    echo "Qt does not start. Install what it needs, which Debian calls: $packages" >&2
    exit 1
fi

echo "installing the libraries that Qt needs"
if [ "$(id -u)" = 0 ]; then
    apt-get -qq update
    # shellcheck disable=SC2086  # a list of names
    DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends $packages >/dev/null
    : >"$target"
else
    root=$(realpath -m "$target-files")
    rm -rf "$root"
    mkdir -p "$root/apt/lists/partial" "$root/apt/archives/partial"
    apt() { apt-get -qq -o Dir::State::Lists="$root/apt/lists" -o Dir::Cache="$root/apt" "$@"; }
    apt update
    # shellcheck disable=SC2086
    missing=$(apt install --simulate --no-install-recommends $packages | awk '$1 == "Inst" {print $2}')
    # shellcheck disable=SC2086
    (cd "$root/apt/archives" && apt download $missing)
    for package in "$root"/apt/archives/*.deb; do dpkg-deb --extract "$package" "$root"; done
    rm -rf "$root/apt"
    libraries=$(find "$root" -name '*.so*' -printf '%h\n' | sort -u | paste -sd:)
    echo "export LD_LIBRARY_PATH=\"$libraries\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}\"" >"$target"
fi

# shellcheck source=/dev/null
. "$target"
starts || { rm "$target"; echo "Qt still does not start: QT_DEBUG_PLUGINS=1 makes it say why." >&2; exit 1; }
