#!/usr/bin/env bash
# bench/hoard.sh TRACES-DIR CATALOG-DIR
#
# The hoard of a catalog (Squirrel, Razavi et al., HPDC 2014, table 1 and figure 12). Every disk of the catalog is
# captured, and each with a trace in TRACES-DIR (recorded by bench/boots.sh) gets its boot set. Then: how much boot sets
# share, what they consist of, the disk space and memory of a node's hoard, the cost of each image, and the time from a
# new boot set until HOARD_NODES (16) nodes on this machine have hoarded it.
#   HOARD_DERIVED   number of images that are then derived from the disks with traces, in turn, like users do (bench/derive),
#                   about a second each (default: 200; 0: none). Each is a clone that is attached, mounted, changed and
#                   published. Its boot set is recorded by a replay: the trace of its origin, and the changed files that
#                   a boot reads
#   DERIVED_INITRD  one in this many of them gets a new initial file system (default: 20; 0: none)
#   BOOT_DISKS      names of the disks to use
# Bytes and counts are the same in every run; times vary.
. "$(dirname "$0")/lib.sh"
TRACES=${1:?usage: bench/hoard.sh TRACES-DIR CATALOG-DIR}
CATALOG=${2:?usage: bench/hoard.sh TRACES-DIR CATALOG-DIR}
NODES=${HOARD_NODES:-16}
DERIVED=${HOARD_DERIVED:-200}
INITRD=${DERIVED_INITRD:-20}
bench_cleanup() {
	end_begun
	for mounted in "$WORK"/donors/* "$WORK/tree"; do ! mountpoint -q "$mounted" || umount -l "$mounted"; done
}
megabytes() { awk -v bytes="$1" 'BEGIN { printf "%.1f MB", bytes / 1e6 }'; }
part() { awk -v bytes="$1" -v of="$2" 'BEGIN { printf "%.1f %%", bytes * 100 / of }'; }

mapfile -t disks < <(images "$CATALOG" | xargs -n 1 basename -s .raw)
[ -z "${BOOT_DISKS:-}" ] || read -ra disks <<<"$BOOT_DISKS"
example platter-jobs hoard_kinds
KINDS=$EXAMPLE
example platter-export replay
REPLAY=$EXAMPLE

# --- the catalog
new_store
mkdir "$WORK/kinds"
booted=()
for name in "${disks[@]}"; do
	platter capture "$CATALOG/$name.raw" "bench/$name" >/dev/null
	[ -f "$TRACES/$name.trace" ] || continue
	platter hoard import "$TRACES/$name.trace" "bench/$name" >/dev/null
	"$ROOT/bench/disk-kinds" "$CATALOG/$name.raw" "$MNT" >"$WORK/kinds/bench-$name.tsv"
	booted+=("$name")
done
sync_hoard() { platter_json hoard sync --cache "$WORK/node" >"$WORK/synced"; }
sync_hoard
status() { platter_json hoard status --cache "$WORK/node"; }
status >"$WORK/status"
figure() { jq "$1" "$WORK/status"; }

heading "Hoard of ${#booted[@]} disks"
result "" "Platter" "Squirrel, 607 images"
result "virtual" "$(awk -v b="$(figure .virtual_bytes)" 'BEGIN { printf "%.1f GB", b / 1e9 }')" "16.4 TB"
result "in use, not zero" "$(megabytes "$(figure .allocated_bytes)")" "1.4 TB"
result "boot sets, summed" "$(megabytes "$(figure .boot_set_bytes)")" "78.5 GB"
result "unique" "$(megabytes "$(figure .unique_bytes)")"
result "on a node's disk" "$(megabytes "$(figure .replica.disk_bytes)")" "15.1 GB computed at 128 KiB, 10 GB measured on ZFS at 64 KiB"
result "share of the sum: unique, on disk" "$(part "$(figure .unique_bytes)" "$(figure .boot_set_bytes)"), $(part "$(figure .replica.disk_bytes)" "$(figure .boot_set_bytes)")" "at most 30 % for 18 disks; 19.2 %, 12.7 %"
result "index in memory, bytes" "$(figure .replica.index_bytes)" "60 MB"
echo
jq -r '.boot_sets[] | [.version, .bytes, .new_bytes, .unique_bytes] | @tsv' "$WORK/status" |
	awk -F '\t' 'BEGIN { printf "%-32s %10s %10s %8s %10s\n", "boot set, MB", "bytes", "new", "", "all" } { printf "%-32s %10.1f %10.1f %6.1f %% %9.1f\n", $1, $2 / 1e6, $3 / 1e6, $3 * 100 / $2, $4 / 1e6 }'

heading "What boot sets are made of"
"$KINDS" "$STORE" "$WORK/kinds" >"$WORK/made"
jq -r '.kinds | sort_by(-.stored)[] | [.kind, .sum, .unique, .stored] | @tsv' "$WORK/made" |
	awk -F '\t' 'BEGIN { printf "%-24s %10s %14s %10s\n", "kind, MB", "summed", "no doubles", "as kept" } { printf "%-24s %10.1f %14.1f %10.1f\n", $1, $2 / 1e6, $3 / 1e6, $4 / 1e6 }'
for items in boot_sets images; do
	result "$items: bytes that any other of $(jq ".$items.items" "$WORK/made") has" "$(jq ".$items.shared_by_any" "$WORK/made")"
	result "$items: part of the others that have a byte" "$(jq ".$items.shared_by_each_other" "$WORK/made")"
done

# new_version OLD NEW: what the boot set of NEW adds to a hoard that has only that of OLD
new_version() {
	[[ " ${booted[*]} " == *" $1 "* && " ${booted[*]} " == *" $2 "* ]] || return 0
	local all=$STORE added
	STORE=$WORK/two
	new_store
	for name in "$1" "$2"; do
		platter capture "$CATALOG/$name.raw" "bench/$name" >/dev/null
		platter hoard import "$TRACES/$name.trace" "bench/$name" >/dev/null
	done
	added=$(platter_json hoard status | jq -r '.boot_sets[1] | "\(.new_bytes) \(.bytes)"')
	rm -rf "$STORE"
	STORE=$all
	result "$2 after $1 adds" "$(part "${added% *}" "${added#* }")" "$3"
}
new_version snap3 snap4 "at most 10 %"
new_version bookworm-base-v2 bookworm-sdk "at most 10 %"
new_version bookworm-base bookworm-base-v2 "a new kernel, and its initial file system: both are compressed, and all new"
new_version snap1 snap2 "the same"

# --- nodes
serve() {
	begin "$WORK/origin.log" "$PLATTER" --store "$STORE" --quiet serve --listen "unix:$WORK/origin.sock"
	ORIGIN=$SERVER
	wait_for curl -sf --unix-socket "$WORK/origin.sock" http://origin/metrics
}
ask() { curl -s --unix-socket "$WORK/origin.sock" "http://origin$1"; }
sent() { ask /metrics | awk '$1 == "platter_frame_stream_bytes_sent_total" { printf "%d", $2 }'; }
# node NAME OPTION...: starts a node with a cache in $WORK/nodes/NAME
node() {
	local name=$1
	shift
	begin "$WORK/$name.log" "$PLATTER" --server "unix:$WORK/origin.sock" --quiet node --cache "$WORK/nodes/$name" --cache-size 512M --memory 16 --name "$name" "$@"
}
resident() { awk -v key="$2:" '$1 == key { printf "%.1f", $2 / 1024 }' "/proc/$1/status"; } # PID VmRSS|VmHWM: MiB
# memory: memory of a node with the hoard and of one without, at rest and after a boot, and its maximum while it fetches
# the hoard
memory() {
	local name=${booted[0]} with without fetching revision
	serve
	mkdir -p "$WORK/nodes"
	revision=$(platter_json hoard status | jq .revision)
	cp -a "$WORK/node" "$WORK/nodes/with"
	node with "bench/$name"
	with=$SERVER
	node without --no-hoard "bench/$name"
	without=$SERVER
	node fetching
	fetching=$SERVER
	for pair in with without; do wait_for nbdinfo --size "nbd+unix:///bench/$name?socket=$WORK/nodes/$pair/nbd.sock"; done
	sleep 2
	result "memory at rest: a node with the hoard, without" "$(resident "$with" VmRSS), $(resident "$without" VmRSS) MiB" "60 MB more at most"
	for pair in with without; do
		"$REPLAY" "$TRACES/$name.trace" --nbd "nbd+unix:///bench/$name?socket=$WORK/nodes/$pair/nbd.sock" >/dev/null
	done
	result "peak with a boot: a node with the hoard, without" "$(resident "$with" VmHWM), $(resident "$without" VmHWM) MiB" "60 MB more at most"
	wait_for sh -c "[ \"\$('$PLATTER' --store '$STORE' --quiet --json hoard status --cache '$WORK/nodes/fetching' | jq .replica.revision)\" = $revision ]"
	result "peak of a node that fetches all of the hoard" "$(resident "$fetching" VmHWM) MiB"
	end "$with"
	end "$without"
	end "$fetching"
	rm -rf "$WORK/nodes"
	end "$ORIGIN"
}
heading "Nodes"
memory

# registering: time from a new boot set until every node has it. The nodes share this machine's disk; each already has
# one disk's boot set.
registering() {
	local all=$STORE one=${booted[0]} two=${booted[1]:-} began before number revision there
	[ -n "$two" ] || return 0
	STORE=$WORK/few
	new_store
	for name in "$one" "$two"; do platter capture "$CATALOG/$name.raw" "bench/$name" >/dev/null; done
	platter hoard import "$TRACES/$one.trace" "bench/$one" >/dev/null
	serve
	# all_have REVISION: every node has reported this revision to the origin. Polled rarely, because polling takes
	# processor time from the nodes.
	all_have() { sleep 0.2 && [ "$(ask /api/v1/nodes | jq "[.nodes[] | select(.hoard_revision >= $1)] | length")" = "$NODES" ]; }
	for number in $(seq "$NODES"); do
		if [ "$#" = 0 ]; then node "r$number"; else node "r$number" "$1" "127.0.0.1:$((25700 + number))"; fi
	done
	wait_for all_have 1
	[ "$#" = 0 ] || wait_for sh -c "curl -s --unix-socket '$WORK/origin.sock' http://origin/api/v1/nodes | jq -e '[.nodes[] | select(.counters.peers_known >= $((NODES - 1)))] | length == $NODES'"
	before=$(sent)
	began=$EPOCHREALTIME
	"$PLATTER" --server "unix:$WORK/origin.sock" --quiet --json hoard import "$TRACES/$two.trace" "bench/$two" >"$WORK/registered"
	revision=$(jq .revision "$WORK/registered")
	wait_for all_have "$revision"
	there=$(calculate "$EPOCHREALTIME - $began")
	result "registered until $NODES nodes have it${1:+, with $1}" "$there s" "at most 10 s; the boot set has $(megabytes "$(jq .bytes "$WORK/registered")"), the origin sent $(megabytes $(($(sent) - before)))"
	for pid in "${!RUNNING[@]}"; do [ "$pid" = "$ORIGIN" ] || end "$pid"; done
	end "$ORIGIN"
	rm -rf "$WORK/nodes" "$STORE"
	STORE=$all
}
if [ "$NODES" -gt 0 ]; then
	registering
	registering --peers
fi

# --- derived images
# may_be_derived NAME: an ext4 system with others of its release in the catalog
column() { awk -F '\t' -v name="$1" -v column="$2" '$2 == name { print $column }' "$CATALOG/catalog.tsv"; }
root_of() { sfdisk -J "$1" 2>/dev/null | jq -r '[.partitiontable.partitions[]] | max_by(.size) | "\(.start * 512) \(.size * 512)"'; }
donors_of() {
	local other
	for other in "${disks[@]}"; do
		[ "$other" = "$1" ] || [ "$(column "$other" 3)" != "$(column "$1" 3)" ] || [ "$(column "$other" 5)" != ext4 ] || echo "$other"
	done
}
derive() { # NUMBER PARENT
	local name=derived/$1 parent=$2 offset length initrd=0 donors=() live server
	[ "$INITRD" = 0 ] || [ $(($1 % INITRD)) != 0 ] || initrd=1
	mapfile -t donors < <(donors_of "$parent" | sed "s|^|$WORK/donors/|")
	read -r offset length < <(root_of "$CATALOG/$parent.raw")
	platter clone "bench/$parent" "$name" >/dev/null
	mkdir -p "$WORK/tree"
	live=$WORK/tree/$name/live.raw
	begin "$WORK/live.log" "$PLATTER" --store "$STORE" --quiet attach --write "$name" --on-detach publish --fuse "$WORK/tree"
	server=$SERVER
	wait_for [ -f "$live" ]
	attach "$live" --offset "$offset" --sizelimit "$length"
	mount "$DEVICE" "$MNT"
	"$ROOT/bench/derive" "$MNT" "$offset" "$1" "$initrd" "${donors[@]}" >"$WORK/changed"
	umount "$MNT"
	detach "$DEVICE"
	end "$server"
	begin "$WORK/live.log" "$PLATTER" --store "$STORE" --quiet attach "$name" --nbd "$WORK/derived.sock" --record "$WORK/derived.trace"
	server=$SERVER
	wait_for nbdinfo --size "nbd+unix:///$name?socket=$WORK/derived.sock"
	"$REPLAY" "$TRACES/$parent.trace" --nbd "nbd+unix:///$name?socket=$WORK/derived.sock" --also "$WORK/changed" >/dev/null
	end "$server"
	platter hoard import "$WORK/derived.trace" "$name" --marker "replay of $parent" >/dev/null
	rm -f "$WORK/derived.trace" "$WORK/derived.sock"
}
if [ "$DERIVED" -gt 0 ]; then
	parents=()
	for name in "${booted[@]}"; do [ "$(column "$name" 5)" != ext4 ] || parents+=("$name"); done
	for name in "${disks[@]}"; do
		[ "$(column "$name" 5)" = ext4 ] || continue
		mkdir -p "$WORK/donors/$name"
		read -r offset length < <(root_of "$CATALOG/$name.raw")
		mount -t ext4 -o "ro,noload,loop,offset=$offset,sizelimit=$length" "$CATALOG/$name.raw" "$WORK/donors/$name"
	done
	began=$SECONDS
	for number in $(seq "$DERIVED"); do derive "$number" "${parents[$((number % ${#parents[@]}))]}"; done
	for mounted in "$WORK"/donors/*; do umount "$mounted"; done
	took=$((SECONDS - began))
	sync_hoard
	before=$(figure '.replica.disk_bytes, .boot_set_bytes' | xargs)
	status >"$WORK/status"
	heading "$DERIVED images derived from ${#parents[@]} disks, with those $((${#booted[@]} + DERIVED)) boot sets ($took s)"
	result "boot sets, summed" "$(megabytes "$(figure .boot_set_bytes)")"
	result "unique; on a node's disk" "$(megabytes "$(figure .unique_bytes)"), $(megabytes "$(figure .replica.disk_bytes)")"
	result "share of the sum: unique, on disk" "$(part "$(figure .unique_bytes)" "$(figure .boot_set_bytes)"), $(part "$(figure .replica.disk_bytes)" "$(figure .boot_set_bytes)")" "at most 10 %"
	result "what the derived ones added: on disk, as part of their sum" \
		"$(megabytes $(($(figure .replica.disk_bytes) - ${before% *}))), $(part $(($(figure .replica.disk_bytes) - ${before% *})) $(($(figure .boot_set_bytes) - ${before#* })))"
	result "one of them adds, before compression: median, most" \
		"$(jq -r '[.boot_sets[] | select(.version | startswith("derived")) | .new_bytes / 1e6] | sort | "\(.[length / 2 | floor] * 10 | round / 10), \(last * 10 | round / 10) MB"' "$WORK/status")"
	result "index in memory, bytes; hoard.json" "$(figure .replica.index_bytes), $(stat -c %s "$WORK/node/hoard/hoard.json")"
	"$PLATTER" --store "$STORE" --quiet hoard status --cache "$WORK/node" | sed -n '/^one more/,/^$/p'
	echo "Growth of the hoard before compression, by the curves that Squirrel compares (figures 14 to 18)"
	jq -r '.boot_sets[].new_bytes' "$WORK/status" | "$ROOT/bench/fits.py" "$((${#booted[@]} + DERIVED))" 607 3000
	memory
fi
