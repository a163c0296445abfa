#!/usr/bin/env bash
# tests/node.sh: versions of an origin that are read through a cache, and a node that serves them. Cached data is not
# fetched again, and unread data is not transferred. A node that is killed during I/O, an origin that is down, a cache
# smaller than the disk, and damage in the cache cause no wrong byte; a filled disk is fully local. PLATTER_SEED selects
# the moments.
. "$(dirname "$0")/lib.sh"

case ${PLATTER_SIZE:-quick} in full) kills=20 ;; *) kills=4 ;; esac
ORIGIN=
NODE=
SOCKET=$WORK/origin.sock
CACHE=$WORK/cache
suite_cleanup() {
	local process
	for process in $ORIGIN $NODE $(jobs -p); do kill -KILL "$process" 2>/dev/null; done
}

afar() { "$PLATTER" --server "unix:$SOCKET" --quiet "$@"; }
start_origin() {
	"$PLATTER" --store "$STORE" serve --listen "unix:$SOCKET" >>"$WORK/origin.log" 2>&1 &
	ORIGIN=$!
	until_true 30 afar images || { cat "$WORK/origin.log"; return 1; }
}
# end NAME SIGNAL: ends the process whose id is in the variable NAME, and waits for it
end() {
	local -n process=$1
	kill "-$2" "$process"
	wait "$process" 2>/dev/null || true
	process=
}
# sent: bytes of frames that this origin has sent
sent() { curl -s --unix-socket "$SOCKET" http://platter/metrics | awk '$1 == "platter_frame_stream_bytes_sent_total" { print $2 }'; }
sent_nothing_since() { [ "$(sent)" = "$1" ]; }

# node ARGUMENT...: starts the node in the background, and waits until it answers
node() {
	"$PLATTER" node --no-hoard --origin "unix:$SOCKET" --cache "$CACHE" "$@" >>"$WORK/node.log" 2>&1 &
	NODE=$!
	until_true 30 "$PLATTER" disks --node "$CACHE" || { cat "$WORK/node.log"; return 1; }
}
of_node() { "$PLATTER" --json disks --node "$CACHE" | jq -es "$1"; }
uri() { echo "nbd+unix:///$1?socket=$CACHE/nbd.sock"; }
# same DISK FILE: the disk, read over NBD, equals the file
same() {
	rm -f "$WORK/copied"
	nbdcopy "$(uri "$1")" "$WORK/copied" && cmp "$WORK/copied" "$2"
}
is_served() { nbdinfo --size "$(uri "$1")"; }

file_tree "$WORK/tree" 24 node
ext4_image "$WORK/disk" 64 "$WORK/tree"
random 25165824 other >"$WORK/other"
platter init
platter capture "$WORK/disk" lab/disk >/dev/null
platter capture --raw "$WORK/other" lab/other >/dev/null
platter export lab/disk "$WORK/shown" >/dev/null
start_origin

check_exit "$EXIT_USAGE" "a cache without an origin is a usage error" platter export lab/disk "$WORK/x" --cache-dir "$CACHE"
check_exit "$EXIT_REFUSED" "a cache that is too small is refused" afar export lab/disk "$WORK/x" --cache-dir "$WORK/small" --cache-size 4M
check "a version is read through a cache" afar export lab/disk "$WORK/exported" --cache-dir "$CACHE"
check "with the right bytes" cmp "$WORK/exported" "$WORK/shown"
before=$(sent)
check "a version is installed from the cache" afar install lab/disk "$WORK/installed" --free zero --cache-dir "$CACHE"
check "with the right bytes" cmp "$WORK/installed" "$WORK/shown"
check "and no frame was fetched" sent_nothing_since "$before"
"$PLATTER" --server "unix:$SOCKET" attach lab/disk --nbd "$CACHE/nbd.sock" --cache-dir "$CACHE" >"$WORK/attach.log" 2>&1 &
# shellcheck disable=SC2034  # `end` takes its name
ATTACHED=$!
check "a disk is attached through the cache" until_true 30 is_served lab/disk
check "and reads as the disk" same lab/disk "$WORK/shown"
check "the disk is listed without naming the cache" eval 'afar --json disks | jq -es "any(.disk == \"lab/disk\")"'
check_exit "$EXIT_REFUSED" "another process cannot use the cache meanwhile" afar export lab/disk "$WORK/x" --cache-dir "$CACHE"
end ATTACHED TERM
check "and still no frame was fetched" sent_nothing_since "$before"

check "a node starts" node
check "it attaches a disk" "$PLATTER" attach lab/other --node "$CACHE"
check "with the right bytes" same lab/other "$WORK/other"
before=$(sent)
check "and again from the cache" same lab/other "$WORK/other"
check "with no frame fetched" sent_nothing_since "$before"
check_exit "$EXIT_REFUSED" "the same disk is not attached twice" "$PLATTER" attach lab/other --node "$CACHE"
check_exit "$EXIT_MISSING" "an unknown version is missing" "$PLATTER" attach lab/none --node "$CACHE"
check "the node lists its disks" of_node '.[0] | .disk == "lab/other" and .node.fetched_bytes > 20000000 and .node.hits > 0'
check "also as a table" sh -c "'$PLATTER' disks --node '$CACHE' | grep -q 'on demand'"

# Random reads: blocks of 32 KiB, of which a frame has four. Only they and pages of the recipe are transferred.
end NODE TERM
rm -rf "$CACHE"
node
"$PLATTER" attach lab/other --node "$CACHE" >/dev/null
places=()
for n in $(seq 0 35); do places+=(-c "read $((n * 655360 + 40960)) 4k"); done
here_and_there() { qemu-io -r -f raw "${places[@]}" "$1"; }
# travelled SINCE LEAST MOST: the number of blocks transferred since then is in this range, with 5 % for headers and
# pages
travelled() {
	local bytes=$(($(sent) - $1)) least=$(($2 * 32768)) most=$(($3 * 32768 * 105 / 100))
	echo "$bytes bytes, $least to $most are right"
	[ "$bytes" -ge "$least" ] && [ "$bytes" -le "$most" ]
}
before=$(sent)
check "parts of a disk are read" here_and_there "$(uri lab/other)"
check "only these blocks were fetched" travelled "$before" 36 36
end NODE KILL
node
check "after a kill of its node, the disk is served again" until_true 30 is_served lab/other
before=$(sent)
check "and the same parts are read" here_and_there "$(uri lab/other)"
check "without fetching them again" sent_nothing_since "$before"
check "then the whole disk is read" same lab/other "$WORK/other"
check "which fetches the rest, and cached blocks only as parts of frames" travelled "$before" $((768 - 36)) 768

# A hoard fetches the blocks of a new boot set, and nothing else.
afar hoard sync --cache "$WORK/hoarding" >/dev/null
rm -f "$WORK/nbd.sock"
start_server lab/other --nbd "$WORK/nbd.sock" --record "$WORK/trace"
here_and_there "nbd+unix:///lab/other?socket=$WORK/nbd.sock" >/dev/null
stop TERM
afar hoard import "$WORK/trace" lab/other >/dev/null
before=$(sent)
check "a hoard syncs" afar hoard sync --cache "$WORK/hoarding"
check "and fetches only the blocks of the new boot set" travelled "$before" 36 36
afar hoard unregister lab/other >/dev/null

# Killed while clients read, with an empty cache at first: each time it continues where it was.
end NODE TERM
rm -rf "$CACHE"
node
"$PLATTER" attach lab/other --node "$CACHE" >/dev/null
bad=0
for n in $(seq "$kills"); do
	{ nbdcopy "$(uri lab/other)" "$WORK/torn" >/dev/null 2>&1 || true; } &
	reader=$!
	sleep "0.$(printf %03d "$(number "kill $n" 300)")"
	end NODE KILL
	wait "$reader" || true
	node && until_true 30 is_served lab/other || bad=1
done
check "a node that was killed $kills times serves its disk again" [ "$bad" = 0 ]
check "and every byte is right" same lab/other "$WORK/other"

# The origin is down: cached data stays available, and the rest can be read once it is back.
end ORIGIN TERM
check "without the origin, cached data is readable" same lab/other "$WORK/other"
check_exit "$EXIT_FAILED" "an unknown version cannot be attached" "$PLATTER" attach lab/disk --node "$CACHE"
start_origin
check "once the origin is back, it can be attached" until_true 20 "$PLATTER" attach lab/disk --node "$CACHE"
check "with the right bytes" same lab/disk "$WORK/shown"
check "a disk is detached" "$PLATTER" detach lab/disk --node "$CACHE"
check "and no longer served" of_node 'map(.disk) == ["lab/other"]'

# A filled disk is fully local.
end NODE TERM
rm -rf "$CACHE"
node
check "a disk is attached to be filled" "$PLATTER" attach lab/disk --fill --node "$CACHE"
check "it is filled" until_true 60 of_node '.[0].fill.filled'
before=$(sent)
check "then it is read" same lab/disk "$WORK/shown"
check "without fetching anything" sent_nothing_since "$before"
end ORIGIN KILL
end NODE KILL
check "with the origin down, the node restarts" node
check "it serves the disk" until_true 30 is_served lab/disk
check "with every byte" same lab/disk "$WORK/shown"
check "and reports it as filled" until_true 30 of_node '.[0].fill.filled'
check "also in the table" sh -c "'$PLATTER' disks --node '$CACHE' | grep -q 'fully local'"
"$PLATTER" detach lab/disk --node "$CACHE" >/dev/null
check "a version seen before is attached without the origin" "$PLATTER" attach lab/disk --node "$CACHE"
check "with the right bytes" same lab/disk "$WORK/shown"
end NODE TERM
start_origin

# The tree of all images, beside the disks; while the origin is down, its last state.
mkdir "$WORK/tree-of-node"
check "a node mounts the tree" node --fuse "$WORK/tree-of-node"
check "with the origin's images" cmp "$WORK/tree-of-node/lab/disk/1.raw" "$WORK/shown"
check_exit 1 "which is read-only" rm "$WORK/tree-of-node/lab/disk/1.raw"
end NODE TERM
end ORIGIN KILL
check "with the origin down, it is mounted again" node --fuse "$WORK/tree-of-node"
check "and a version is read from the cache" cmp "$WORK/tree-of-node/lab/disk/1.raw" "$WORK/shown"
end NODE TERM
own=$CACHE
CACHE=$WORK/other-cache
check "a node that never saw the origin starts without names" node --fuse "$WORK/tree-of-node"
end NODE TERM
CACHE=$own
start_origin

# A cache smaller than the disk: two complete reads are right, and the directory stays within its limit.
rm -rf "$CACHE"
limit=16000000
node --cache-size 16M
"$PLATTER" attach lab/other --node "$CACHE" >/dev/null
: >"$WORK/sizes"
while :; do
	# A segment may be evicted while it is listed.
	{ find "$CACHE" -type f -printf '%s\n' 2>/dev/null || true; } | awk '{ sum += $1 } END { print sum }' >>"$WORK/sizes"
	sleep 0.02
done &
watcher=$!
check "a disk larger than the cache is right" same lab/other "$WORK/other"
check "and again" same lab/other "$WORK/other"
kill "$watcher"
wait "$watcher" 2>/dev/null || true
most=$(sort -n "$WORK/sizes" | tail -n 1)
check "the cache held at most $most bytes; the limit is $limit and a segment" [ "$most" -le $((limit + limit / 8 + 100000)) ]
check "frames were evicted" of_node '.[0].node.evicted > 0 and .[0].node.cache_bytes <= 16000000'

# One byte of each segment is changed while the node is down, and one while it runs.
end NODE TERM
spoil() {
	local segment
	for segment in "$CACHE"/segments/*; do
		printf '\125' | dd of="$segment" bs=1 seek=$(($(stat -c %s "$segment") * 2 / 3 + $1)) conv=notrunc status=none
	done
}
rm -rf "$CACHE"
node
"$PLATTER" attach lab/other --node "$CACHE" >/dev/null
same lab/other "$WORK/other" >/dev/null
end NODE KILL
spoil 0
check "a node with a damaged cache starts" node
check "and the disk is right" same lab/other "$WORK/other"
check "little was fetched again" of_node '.[0].node.fetched_bytes | . > 0 and . < 1000000'
end NODE TERM
node --memory 1
spoil 40000
check "the disk is right after damage at runtime" same lab/other "$WORK/other"
check "and the damage was counted" of_node '.[0].node.damaged > 0'
end NODE TERM

if [ "${PLATTER_SIZE:-quick}" = full ]; then
	rm -rf "$CACHE"
	node lab/other
	end ORIGIN KILL
	started=$SECONDS
	check_exit 1 "a read of missing data fails while the origin is down" timeout 120 nbdcopy "$(uri lab/other)" "$WORK/torn"
	# A map request, then a read: half a minute each.
	check "after half a minute for each request" [ $((SECONDS - started)) -le 100 ]
	start_origin
	check "and succeeds once the origin is back" same lab/other "$WORK/other"
	end NODE TERM
fi
finish
