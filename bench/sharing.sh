#!/usr/bin/env bash
# bench/sharing.sh CATALOG-DIR
#
# One disk from one origin to several nodes at once (Liquid, figure 9). The origin and each node are processes in
# network namespaces of their own, and every link has the same rate in each direction. The nodes know each other and
# have empty caches; then all are told to fill the whole disk, and the time ends when the last one is fully local.
# Results are ratios to one copy over one link: the disk's stored bytes divided by the link's rate. Bytes are those of
# all packets, with headers. Then the nodes fill a second version of another disk of which they have the first.
#
# For comparison, in the same run and over the same links, to the largest number of receivers: scp of the raw disk and
# of the disk compressed by zstd, HTTP and BitTorrent (aria2) of the latter, and NFS if this kernel serves it. scp, HTTP
# and NFS do not write the data, which is to their advantage.
#
#   SHARING_DISK    a disk of the catalog (default: bookworm-desktop)
#   SHARING_PAIR    two versions of another (default: bookworm-base bookworm-base-v2; empty: none)
#   SHARING_NODES   how many nodes, in turn (default: 1 2 3 4 5 6 7)
#   SHARING_MBIT    rate of each link (default: 50: with seven nodes and the origin on two processors, 200 are beyond these)
#   SHARING_BESIDE  what runs beside (default: scp scp-zstd http bittorrent nfs)
. "$(dirname "$0")/lib.sh"
CATALOG=${1:?usage: bench/sharing.sh CATALOG-DIR}
DISK=${SHARING_DISK:-bookworm-desktop}
read -ra PAIR <<<"${SHARING_PAIR-bookworm-base bookworm-base-v2}"
read -ra SIZES <<<"${SHARING_NODES:-1 2 3 4 5 6 7}"
read -ra BESIDE <<<"${SHARING_BESIDE-scp scp-zstd http bittorrent nfs}"
MBIT=${SHARING_MBIT:-50}
ROOM=$ROOT/lab/room
export PLATTER_ROOM=$WORK/room
readonly ORIGIN=10.78.0.200 SECONDS_MAX=3600
PIDS=()
end_all() {
	local pid
	for pid in "${PIDS[@]}"; do kill "$pid" 2>/dev/null || true; done
	# The shell reports processes that died of the signal.
	for pid in "${PIDS[@]}"; do wait "$pid" 2>/dev/null || true; done
	PIDS=()
}
bench_cleanup() {
	end_all
	"$ROOM" down
}
fail() {
	echo "sharing: $*" >&2
	exit 1
}
# begin MACHINE LOG COMMAND...: starts the command in the machine's namespace in the background
begin() {
	local machine=$1 log=$2
	shift 2
	"$ROOM" in "$machine" "$@" >>"$WORK/$log.log" 2>&1 &
	PIDS+=($!)
}
# until_true SECONDS COMMAND...
until_true() {
	local end=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		[ "$SECONDS" -lt "$end" ] || fail "it did not come to that: $*"
		sleep 0.1
	done
}
ask() { curl -s --unix-socket "$WORK/origin.sock" "http://platter$1"; }
# busy: processor seconds used on this machine so far, including the kernel's
busy() { awk '$1 == "cpu" { print ($2 + $3 + $4 + $7 + $8) / 100 }' /proc/stat; }
# measure NAME COMMAND...: sets TOOK, seconds; SENT, bytes from the origin; and BUSY, the used share of all processors
measure() {
	local name=$1 start before cpu
	shift
	before=$("$ROOM" sent sender) cpu=$(busy) start=$EPOCHREALTIME
	"$@" || { tail -n 5 "$WORK"/*.log >&2; fail "$name failed"; }
	TOOK=$(calculate "$EPOCHREALTIME - $start")
	SENT=$(($("$ROOM" sent sender) - before))
	BUSY=$(calculate "($(busy) - $cpu) / $TOOK / $(nproc)")
	awk -v took="$TOOK" 'BEGIN { exit !(took > 0) }'
}
# keep [PREFIX]: adds these figures to series; medians [PREFIX]: sets the same variables to the medians
keep() {
	local one
	for one in TOOK SENT BUSY; do echo "${!one}" >>"$WORK/times/${1:-}$one"; done
}
medians() { TOOK=$(median "${1:-}TOOK") SENT=$(median "${1:-}SENT") BUSY=$(median "${1:-}BUSY"); }
# told NAME BYTES LIMITS: prints the figures as ratios to this many bytes
told() {
	local note=
	awk -v busy="$BUSY" 'BEGIN { exit !(busy > 0.85) }' && note=", the processors were the limit"
	result "$1: time, as a ratio to one copy over one link" "$(calculate "$TOOK * $MBIT * 1e6 / 8 / $2")" "${3:+at most $3; }$TOOK s, processors $BUSY busy$note"
	result "$1: bytes from the origin, as a ratio" "$(calculate "$SENT / $2")" "${4:+at most $4; }$SENT bytes"
}

new_store
capture() { platter_json capture "$CATALOG/$1.raw" "$2" | jq .new_stored_bytes; }
# The disk is captured first, so that all stored data is the disk's.
stored=$(capture "$DISK" bench/disk)
if [ "${#PAIR[@]}" = 2 ]; then
	capture "${PAIR[0]}" bench/first >/dev/null
	second=$(capture "${PAIR[1]}" bench/second)
fi
platter_json show bench/disk >"$WORK/shown"
secret=$(platter_json serve token add bench --role read --images '*' | jq -r .secret)
cores=$(nproc)

# room N: makes a room of N machines with an origin
room() {
	"$ROOM" up "$1"
	"$ROOM" links "${MBIT}mbit"
	rm -f "$WORK"/*.log
}
serve() {
	begin sender origin "$PLATTER" --store "$STORE" --quiet serve --listen "unix:$WORK/origin.sock" --listen "$ORIGIN:7440"
	until_true 20 ask /api/v1/images
	fingerprint=$(openssl x509 -in "$STORE/serve-certificate.pem" -outform DER | sha256sum | cut -d' ' -f1)
}
know_each_other() { [ "$(ask /api/v1/nodes | jq --argjson others $(($1 - 1)) '[.nodes[] | select(.is_there and .counters.peers_known >= $others and .counters.peers_connected >= $others)] | length')" -ge "$1" ]; }
# nodes N: starts N empty nodes that know each other
nodes() {
	local i
	for i in $(seq "$1"); do
		begin "$i" "node-$i" env PLATTER_TOKEN="$secret" "$PLATTER" --quiet --server "https://$ORIGIN:7440" --fingerprint "$fingerprint" \
			node --no-hoard --cache "$WORK/cache-$i" --peers "10.78.0.$i:7442" --share-rate "${MBIT}M" --name "node-$i"
	done
	for i in $(seq "$1"); do until_true 20 "$PLATTER" disks --node "$WORK/cache-$i"; done
	until_true 60 know_each_other "$1"
}
is_filled() { "$PLATTER" --json disks --node "$WORK/cache-$1" | jq -e --arg disk "$2" '[.. | objects | select(.disk? == $disk and .fill.filled)] | length > 0'; }
# fill N IMAGE: all N nodes fill the image at once
fill() {
	local i attaching=()
	for i in $(seq "$1"); do
		"$PLATTER" --quiet attach "$2" --node "$WORK/cache-$i" --fill >>"$WORK/attach.log" 2>&1 &
		attaching+=($!)
	done
	for i in "${attaching[@]}"; do wait "$i" || return 1; done
	for i in $(seq "$1"); do until_true "$SECONDS_MAX" is_filled "$i" "$2"; done
}
from_peers() { ask /api/v1/nodes | jq '[.nodes[].counters.peers_frame_bytes_received] | add'; }

heading "$DISK at $MBIT Mbit/s to so many nodes"
result "bytes of the disk, and allocated of them" "$(jq .disk_length "$WORK/shown")" "$(jq .allocated_bytes "$WORK/shown")"
result "bytes of the disk as stored" "$stored" "one copy over one link: $(calculate "$stored * 8 / $MBIT / 1e6") s; $cores processors"
most=${SIZES[-1]}
for n in "${SIZES[@]}"; do
	rm -f "$WORK/times"/*
	for _ in $(seq "$RUNS"); do
		room "$n"
		serve
		nodes "$n"
		measure "$n nodes" fill "$n" bench/disk
		keep
		sleep 6
		ask /api/v1/nodes | jq '[.nodes[].counters | with_entries(select(.key | startswith("peers_")))] | {nodes: length, sums: (map(to_entries) | add | group_by(.key) | map({(.[0].key): (map(.value) | add)}) | add)}' >"$WORK/counters-$n"
		if [ "$n" = "$most" ] && [ "${#PAIR[@]}" = 2 ]; then
			fill "$n" bench/first
			measure "the second version" fill "$n" bench/second
			keep second-
		fi
		end_all
		"$ROOM" down
		rm -rf "$WORK"/cache-*
	done
	medians
	told "$n" "$stored" 1.25 1.2
	[ -z "${SHARING_COUNTERS:-}" ] || jq -c . "$WORK/counters-$n"
done
if [ "${#PAIR[@]}" = 2 ]; then
	heading "${PAIR[1]} to $most nodes that hold ${PAIR[0]}"
	result "bytes that it added to the store" "$second"
	medians second-
	told "$most" "$second"
fi

# Other tools that copy a file to many receivers, with as many receivers.
[ "${#BESIDE[@]}" -gt 0 ] || exit 0
heading "Beside it: the same disk to $most receivers, as ratios to the same"
zstd --quiet -3 -T0 "$CATALOG/$DISK.raw" -o "$WORK/disk.raw.zst"
ln -s "$(realpath "$CATALOG/$DISK.raw")" "$WORK/disk.raw"
result "bytes of the disk, compressed by zstd" "$(stat -c %s "$WORK/disk.raw.zst")"
missing() { result "$1" "left out" "$2"; }
# each COMMAND...: runs the command on every receiver at once, with I as its number; succeeds if it succeeds on each
each() {
	local i receivers=()
	for i in $(seq "$most"); do
		I=$i "$ROOM" in "$i" "$@" >>"$WORK/receivers.log" 2>&1 &
		receivers+=($!)
	done
	for i in "${receivers[@]}"; do wait "$i" || return 1; done
}
# beside NAME SERVER COMMAND...: measures the command in a room with this server
beside() {
	local name=$1 server=$2
	shift 2
	rm -f "$WORK/times"/*
	for _ in $(seq "$RUNS"); do
		room "$most"
		"$server"
		measure "$name" "$@"
		keep
		end_all
		"$ROOM" down
	done
	medians
	told "$name" "$stored"
}
ssh_server() {
	mkdir -p /run/sshd
	[ -f "$WORK/key" ] || ssh-keygen -q -t ed25519 -N '' -f "$WORK/key"
	cat >"$WORK/sshd_config" <<-EOF
		Port 22
		HostKey $WORK/key
		AuthorizedKeysFile $WORK/key.pub
		PermitRootLogin yes
		StrictModes no
		UsePAM no
		PidFile none
		MaxStartups 100
		Subsystem sftp internal-sftp
	EOF
	begin sender sshd "$(command -v sshd)" -D -e -f "$WORK/sshd_config"
	until_true 10 "$ROOM" in 1 bash -c "exec 3<>/dev/tcp/$ORIGIN/22"
}
copy_by_ssh() { each scp -q -i "$WORK/key" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "root@$ORIGIN:$1" /dev/null; }
web_server() {
	mkdir -p "$WORK/served"
	ln -sf "$WORK/disk.raw.zst" "$WORK/served/"
	if busybox --list 2>/dev/null | grep -qx httpd; then
		begin sender httpd busybox httpd -f -p 8080 -h "$WORK/served"
	else
		begin sender httpd python3 -m http.server --directory "$WORK/served" 8080
	fi
	until_true 10 "$ROOM" in 1 curl -sf -r 0-0 -o /dev/null "http://$ORIGIN:8080/disk.raw.zst"
}
# aria2_of DIRECTORY OPTION...
aria2_of() {
	local dir=$1
	shift
	echo aria2c --quiet --seed-time=600 --seed-ratio=0.0 --enable-dht=false --enable-dht6=false --bt-enable-lpd=false --listen-port=6881 \
		--file-allocation=none --bt-request-peer-speed-limit=0 --bt-tracker-interval=5 --dir "$dir" "$@" "$WORK/disk.torrent"
}
seeder() {
	rm -rf "$WORK"/swarm-* "$WORK/completed"
	mkdir "$WORK/completed"
	begin sender tracker "$ROOT/bench/bittorrent.py" track 6969
	until_true 10 "$ROOM" in 1 curl -sf "http://$ORIGIN:6969/announce?port=1&event=stopped"
	# shellcheck disable=SC2046  # words
	begin sender seeder $(aria2_of "$WORK" --bt-seed-unverified=true)
	sleep 3
}
# Every receiver keeps sending until the last one has everything.
swarm() {
	local i
	for i in $(seq "$most"); do
		# shellcheck disable=SC2046  # words
		begin "$i" aria2 $(aria2_of "$WORK/swarm-$i" --on-bt-download-complete="$WORK/complete")
	done
	until_true "$SECONDS_MAX" all_completed
}
all_completed() { [ "$(find "$WORK/completed" -type f | wc -l)" = "$most" ]; }
for one in "${BESIDE[@]}"; do
	case $one in
	scp | scp-zstd)
		if ! command -v sshd >/dev/null; then
			missing "$one" "no sshd here"
		elif [ "$one" = scp ]; then
			RUNS=1 beside "scp, raw, once" ssh_server copy_by_ssh "$WORK/disk.raw"
		else
			beside "scp, zstd" ssh_server copy_by_ssh "$WORK/disk.raw.zst"
		fi
		;;
	http) beside "HTTP, zstd" web_server each curl -sf -o /dev/null "http://$ORIGIN:8080/disk.raw.zst" ;;
	bittorrent)
		if ! command -v aria2c >/dev/null; then
			missing BitTorrent "no aria2c here"
			continue
		fi
		"$ROOT/bench/bittorrent.py" make "$WORK/disk.raw.zst" "http://$ORIGIN:6969/announce" "$WORK/disk.torrent"
		# aria2 prints the number of the download.
		printf '#!/bin/sh\ntouch "%s/$1"\n' "$WORK/completed" >"$WORK/complete"
		chmod +x "$WORK/complete"
		beside "BitTorrent (aria2), zstd" seeder swarm
		rm -rf "$WORK"/swarm-*
		;;
	nfs)
		if grep -qw nfsd /proc/filesystems; then missing NFS "this kernel serves it, this script does not"; else missing NFS "this kernel serves none"; fi
		;;
	*) fail "beside what? $one" ;;
	esac
done
