#!/usr/bin/env bash
# Starts a SLURM of two nodes on this machine, as root: start.sh FOLDER, then export SLURM_CONF=FOLDER/slurm.conf
# Debian 12: apt-get install --no-install-recommends slurmctld slurmd slurm-client munge
set -euo pipefail
export PATH="$PATH:/usr/sbin"
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mkdir -p "$1" && cd "$1" && pwd)
mkdir -p "$folder"/{state,spool.n1,spool.n2}
read -r controller n1 n2 < <(python3 -c '
import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
print(*(one.getsockname()[1] for one in sockets))')
sed "s#@FOLDER@#$folder#; s#@HOST@#$(hostname -s)#; s#@USER@#$(id -un)#; s#@CONTROLLER_PORT@#$controller#; s#@N1_PORT@#$n1#; s#@N2_PORT@#$n2#" \
  "$here/slurm.conf.in" >"$folder/slurm.conf"
export SLURM_CONF="$folder/slurm.conf"

# A key of its own: the machine's munge, if it has one, is left alone.
(umask 077 && head -c 128 /dev/urandom >"$folder/munge.key")
munged --force --key-file="$folder/munge.key" --socket="$folder/munge.socket" --pid-file="$folder/munge.pid" \
  --seed-file="$folder/munge.seed" --log-file="$folder/munge.log"
slurmctld -f "$SLURM_CONF"
for node in n1 n2; do slurmd -N "$node" -f "$SLURM_CONF"; done
for _ in $(seq 150); do
  [ "$(sinfo --noheader --states=idle --partition=low --format=%D 2>/dev/null)" != 2 ] || exit 0
  sleep 0.2
done
echo "SLURM's nodes are not idle within 30 s: $(sinfo 2>&1 | tail -n 3)" >&2
exit 1
