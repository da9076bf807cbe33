#!/usr/bin/env bash
# Builds the image for real, runs it, trains and predicts in it, and checks its health: without a Docker engine.
# Needs root, buildah and debootstrap (Debian packages). DEBIAN_MIRROR overrides the mirror of the host's apt sources.
set -euo pipefail
cd "$(dirname "$0")/../.."
scratch=${FEWPASS_CONTAINER_SCRATCH:-${TMPDIR:-/tmp}/fewpass-container}
mkdir -p "$scratch"
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
run=(buildah --root "$scratch/storage" --runroot "$scratch/run")
started=$SECONDS
container=""
step() { printf '%5d s  %s\n' "$((SECONDS - started))" "$*"; }
finish() {
  [ -z "${server:-}" ] || kill "$server" 2>/dev/null || true
  [ -z "$container" ] || "${run[@]}" rm "$container" >/dev/null 2>&1 || true
}
trap finish EXIT

for tool in buildah debootstrap; do
  command -v "$tool" >/dev/null || { echo "$tool is not installed: apt-get install buildah debootstrap" >&2; exit 1; }
done

# 1. A base like python:3.11-slim-bookworm, from Debian packages.
if ! "${run[@]}" inspect --type image fewpass-base >/dev/null 2>&1; then
  mirror=${DEBIAN_MIRROR:-$({ cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null || true; } |
    awk '/^URIs:/ {print $2; exit} /^deb / {for (i = 2; i <= NF; i++) if ($i ~ /^http/) {print $i; exit}}')}
  rm -rf "$scratch/rootfs"
  debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$scratch/rootfs" "$mirror" >"$scratch/debootstrap.log"
  rm -rf "$scratch/rootfs"/var/cache/apt/archives/*.deb "$scratch/rootfs"/var/lib/apt/lists/* "$scratch/rootfs"/usr/share/{doc,man,locale}/*  # as in the slim image
  base=$("${run[@]}" from scratch)
  "${run[@]}" add -q "$base" "$scratch/rootfs" / >/dev/null
  "${run[@]}" commit -q --rm "$base" fewpass-base >/dev/null
  rm -rf "$scratch/rootfs"
  step "base image"
fi

# 2. The Dockerfile, with the host's pip settings mounted for the build only.
python3 - "$scratch/pip.conf" <<'PYTHON'
import subprocess, sys
lines = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True).stdout.splitlines()
options = {line.split("=", 1)[0].rsplit(".", 1)[1]: line.split("=", 1)[1].strip("'\"") for line in lines if "=" in line}
with open(sys.argv[1], "w") as file:
    file.write("[global]\n" + "".join(f"{name} = {value}\n" for name, value in options.items()))
PYTHON
volumes=(--volume "$scratch/pip.conf:/etc/pip.conf:ro")
for folder in $(grep -oE '(file://)?/[^ ]+' "$scratch/pip.conf" | sed 's#^file://##; s#/simple$##' | sort -u); do
  [ -d "$folder" ] && volumes+=(--volume "$folder:$folder:ro")
  [ -f "$folder" ] && volumes+=(--volume "$folder:$folder:ro")
done
"${run[@]}" bud --layers --isolation chroot --network host "${volumes[@]}" --build-arg PYTHON_IMAGE=localhost/fewpass-base -t fewpass . >"$scratch/build.log" 2>&1 ||
  { tail -n 40 "$scratch/build.log" >&2; exit 1; }
step "image: $(grep -o 'All kernels are compiled.*' "$scratch/build.log" | head -n 1)"

# 3. Run it as its own user on a loopback port, and use it as a client would.
container=$("${run[@]}" from fewpass)
root=$("${run[@]}" mount "$container")
step "unpacked: $(du -sh --one-file-system "$root" | cut -f1)"
kernels() { find "$root/opt/fewpass/kernels" -type f | wc -l; }
before=$(kernels)
[ "$before" -gt 50 ] || { echo "only $before files of compiled kernels in the image" >&2; exit 1; }
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
in_image() { "${run[@]}" run --isolation chroot --network host --user fewpass "$container" -- "$@"; }
[ "$(in_image id -u)" = 10001 ] || { echo "the image does not run as its own user" >&2; exit 1; }
in_image python3 -c "
import pyarrow as pa, pyarrow.parquet as pq
rows = range(2000)
pq.write_table(pa.table({f'x{i}': [(r * (i + 3) + r % 7) % 4 for r in rows] for i in range(6)} | {'class': [str(r % 2) for r in rows]}), '/data/train.parquet')"
in_image fewpass serve --host 127.0.0.1 --port "$port" >"$scratch/serve.log" 2>&1 &
server=$!
python3 tests/container/client.py "$port" || { tail -n 30 "$scratch/serve.log" >&2; exit 1; }
step "trained and predicted over REST"
check=$(sed -n 's/^ *CMD \["python3", "-c", "\(.*\)"\]$/\1/p' Dockerfile | sed "s/8000/$port/")
[ -n "$check" ] && in_image python3 -c "$check"
step "HEALTHCHECK passes"
[ "$(kernels)" = "$before" ] || { echo "kernels were compiled when the image ran: the baked cache missed" >&2; exit 1; }
step "no kernel was compiled at run time"
# Not buildah's own processes, whose command lines hold the same words.
pkill -TERM -f "^/opt/fewpass/bin/python.*fewpass serve .*--port $port"
wait "$server" || { echo "the server ended with code $?" >&2; tail -n 20 "$scratch/serve.log" >&2; exit 1; }
server=""
step "stopped by SIGTERM, code 0"
