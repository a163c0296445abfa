#!/usr/bin/env bash
# tests/live.sh: disks that are served and written, with real NBD clients: nbdinfo, nbdcopy, qemu-img, qemu-io. Reads
# are compared with the raw disk, writes with a raw copy that took the same writes; in between, the server is killed
# with SIGKILL. Clones, edit locks, publishing while attached and after detaching. As root, served disks are mounted as
# well.
. "$(dirname "$0")/lib.sh"

SERVER=
suite_cleanup() { [ -z "$SERVER" ] || kill -9 "$SERVER" 2>/dev/null; }

# serve ARGUMENT...: runs `attach` in the background, and waits until it is attached
serve() { start_server --nbd "$WORK/nbd.sock" "$@"; }
uri() { echo "nbd+unix:///$1?socket=$WORK/nbd.sock"; }
same_as() { qemu-img compare -f raw -F raw "$1" "$(uri "$2")"; }
# both COMMAND: runs the qemu-io command on the served disk and on the copy
both() {
	qemu-io -f raw -c "$1" "$(uri "$2")" && qemu-io -f raw -c "$1" "$WORK/copy"
}

file_tree "$WORK/tree" 16 live
ext4_image "$WORK/disk" 64 "$WORK/tree"
platter init
platter capture "$WORK/disk" lab/disk >/dev/null
# The expected contents of a served disk: zeros in unallocated space.
platter export lab/disk "$WORK/shown" >/dev/null
cp --sparse=always "$WORK/shown" "$WORK/copy"

check "a version is served" serve lab/disk
check "nbdinfo lists it" sh -c "nbdinfo --list '$(uri '')' | grep -q lab/disk"
nbdinfo --json "$(uri lab/disk)" >"$WORK/info.json"
check "it is read-only, has the right size, and allows many connections" jq -e --argjson bytes "$(stat -c %s "$WORK/disk")" '
	.exports[0] | .["export-size"] == $bytes and .is_read_only and .can_multi_conn' "$WORK/info.json"
check "qemu-img compare finds no difference" same_as "$WORK/shown" lab/disk
nbdcopy "$(uri lab/disk)" "$WORK/copied"
check "nbdcopy gets the right bytes" cmp "$WORK/shown" "$WORK/copied"
nbdinfo --map --json "$(uri lab/disk)" >"$WORK/map.json"
check "the map shows holes and data" jq -e '([.[] | select(.type == 3)] | length > 0) and ([.[] | select(.type == 0)] | length > 0)' "$WORK/map.json"
check_exit 1 "a write is refused" qemu-io -f raw -c 'write 0 4k' "$(uri lab/disk)"
check_exit 1 "an unknown disk is refused" nbdinfo "$(uri lab/other)"
stop TERM
check "the server removes its socket" test ! -e "$WORK/nbd.sock"

check "a version is served and recorded" serve lab/disk --record "$WORK/trace"
qemu-io -r -f raw -c 'read 64k 8k' -c 'read 68k 8k' "$(uri lab/disk)" >/dev/null
check "disks prints counters of the memory cache" sh -c "'$PLATTER' --store '$STORE' --json disks | jq -e '.cache.misses > 0'"
stop TERM
check "the server reports at the end what was recorded" grep -q 'recorded .* requests, 16.4 kB read' "$WORK/server.log"
platter_json trace "$WORK/trace" >"$WORK/trace.json"
check "the trace has both reads and their overlap" jq -e '
	.reads == 2 and .bytes_read == 16384 and .distinct_bytes_read == 12288 and .writes == 0 and .lost == 0 and .whole' "$WORK/trace.json"
check_exit $EXIT_FAILED "an existing file is not overwritten by a trace" "$PLATTER" --store "$STORE" attach lab/disk --nbd "$WORK/nbd.sock" --record "$WORK/trace"
check_exit $EXIT_CORRUPT "a file that is no trace is refused" "$PLATTER" trace "$WORK/disk"

check "a disk is served for writing" serve --write lab/disk
check "writes arrive" both 'write -P 0x11 1m 300k' lab/disk
check "and partial blocks" both 'write -P 0x22 5000 700' lab/disk
check "and zeros" both 'write -z 2m 1m' lab/disk
check "discards read as zeros" qemu-io -f raw -c 'discard 4m 1m' "$(uri lab/disk)"
qemu-io -f raw -c 'write -z 4m 1m' "$WORK/copy" >/dev/null
check "the disk has all writes" same_as "$WORK/copy" lab/disk
platter_json disks >"$WORK/disks.json"
check "disks names the holder" jq -e '.disk == "lab/disk" and .writable and .edit_lock > 0 and .written_bytes > 0 and (.holder | length > 0)' "$WORK/disks.json"
check_exit "$EXIT_REFUSED" "nobody else can attach it for writing" "$PLATTER" --store "$STORE" attach --write --nbd "$WORK/other.sock" lab/disk
check_exit "$EXIT_REFUSED" "nor capture to its image" platter capture "$WORK/disk" lab/disk
"$PLATTER" --store "$STORE" --quiet attach lab/disk@1 --nbd "$WORK/reader.sock" >"$WORK/reader.log" 2>&1 &
READER=$!
for _ in $(seq 200); do [ ! -S "$WORK/reader.sock" ] || break; sleep 0.05; done
check_exit "$EXIT_REFUSED" "detach without --then is refused for changes" platter detach lab/disk
check_exit "$EXIT_REFUSED" "a socket in use is refused" platter attach lab/disk@1 --nbd "$WORK/nbd.sock"
check_exit "$EXIT_USAGE" "a mistyped port is not taken as a socket's path" platter attach lab/disk@1 --nbd 127.0.0.1:99999
stop KILL
check "after kill -9 it is served again" serve --write lab/disk
check "with all writes" same_as "$WORK/copy" lab/disk

check "it is published while it is attached" platter publish lab/disk --note 'while attached'
check "writing continues" both 'write -P 0x33 8m 64k' lab/disk
check "and the disk is right" same_as "$WORK/copy" lab/disk
check "and is published again" platter publish lab/disk
check_exit "$EXIT_REFUSED" "publish without changes is refused" platter publish lab/disk
check "the writable disk is detached and published, and no longer edited" platter detach lab/disk --then publish
wait "$SERVER" 2>/dev/null || true
SERVER=
kill "$READER"
wait "$READER" 2>/dev/null || true
check_exit "$EXIT_MISSING" "a disk whose socket cannot be created" platter attach --write lab/disk --nbd "$WORK/none/nbd.sock"
check "is not edited" [ -z "$(platter lock list --quiet | tail -n +2)" ]
check "no overlay is left" sh -c "[ -z \"\$(ls '$STORE/overlays')\" ]"
platter_json history lab/disk >"$WORK/history.json"
check "history has three versions" sh -c "[ \$(wc -l <'$WORK/history.json') = 3 ]"
platter export lab/disk "$WORK/published" >/dev/null
check "the version equals the disk" cmp "$WORK/copy" "$WORK/published"
check "the store is sound" platter check --read-data

check_exit "$EXIT_REFUSED" "an older version cannot be attached for writing" "$PLATTER" --store "$STORE" attach --write --nbd "$WORK/other.sock" lab/disk@1
check "a clone is made" platter clone lab/disk lab/clone
check "two disks are served by one process" serve --write lab/disk lab/clone
check "a clone is written" qemu-io -f raw -c 'write -P 0x44 10m 1m' "$(uri lab/clone)"
check "the original is unchanged" same_as "$WORK/copy" lab/disk
check "one is detached" platter detach lab/clone --then publish
check "the other is still served" same_as "$WORK/copy" lab/disk
stop TERM
check "a disk without changes is discarded" platter discard lab/disk
qemu-io -f raw -c 'write -P 0x44 10m 1m' "$WORK/copy" >/dev/null
platter export lab/clone "$WORK/clone" >/dev/null
check "the clone's version equals its disk" cmp "$WORK/copy" "$WORK/clone"

# Over blocks that the file system uses (free blocks would be dropped), a client writes block after block and notes each
# acknowledged one, while the disk is published and detached.
check "a disk is served to a client that keeps writing" serve --write lab/clone
(
	written=0
	while qemu-io -f raw -c "write -P 0x5a $((10 * 1048576 + written * 4096)) 4k" "$(uri lab/clone)" >/dev/null 2>&1; do
		written=$((written + 1))
		echo "$written" >"$WORK/told"
	done
) &
writer=$!
sleep 0.5
check "it is detached and published meanwhile" platter detach lab/clone --then publish
wait "$writer" "$SERVER" 2>/dev/null || true
SERVER=
platter export lab/clone "$WORK/detached" >/dev/null
told=$(cat "$WORK/told")
check "the version has every acknowledged write" cmp <(head -c $((told * 4096)) /dev/zero | tr '\0' '\132') \
	<(tail -c +$((10 * 1048576 + 1)) "$WORK/detached" | head -c $((told * 4096)))
cp "$WORK/detached" "$WORK/copy"

check "a disk's changes are kept at the end" serve --write lab/clone
qemu-io -f raw -c 'write -P 0x55 12m 128k' "$(uri lab/clone)" >/dev/null
stop TERM
check "a disk with unpublished changes is listed" sh -c "'$PLATTER' --store '$STORE' disks | grep -q lab/clone"
check "and published without a server" platter publish lab/clone
check_exit "$EXIT_MISSING" "only once" platter publish lab/clone
qemu-io -f raw -c 'write -P 0x55 12m 128k' "$WORK/copy" >/dev/null
platter export lab/clone "$WORK/waited" >/dev/null
check "with all writes" cmp "$WORK/copy" "$WORK/waited"

check "the first holder serves the disk" serve --write --holder first lab/clone
qemu-io -f raw -c 'write -P 0x66 0 4k' "$(uri lab/clone)" >/dev/null
kill -STOP "$SERVER"
check "the edit lock of a suspended holder is stolen" sh -c "'$PLATTER' --store '$STORE' attach --write --steal --holder second --on-detach publish \
	--nbd '$WORK/second.sock' lab/clone >'$WORK/second.log' 2>&1 & echo \$! >'$WORK/second.pid'
	until grep -q '^score ' '$WORK/second.log'; do kill -0 \$(cat '$WORK/second.pid') || exit 1; sleep 0.05; done"
check "the new holder writes" qemu-io -f raw -c 'write -P 0x77 16m 4k' "nbd+unix:///lab/clone?socket=$WORK/second.sock"
kill -TERM "$(cat "$WORK/second.pid")"
while kill -0 "$(cat "$WORK/second.pid")" 2>/dev/null; do sleep 0.05; done
kill -CONT "$SERVER"
before=$(platter_json show lab/clone | jq -r .score)
check_exit "$EXIT_REFUSED" "the suspended holder can no longer publish" platter publish lab/clone
check_said "and the message suggests what to do" 'platter publish lab/clone NEW-NAME --lock'
lost=$(platter_json disks | jq -r 'select(.lost) | .edit_lock')
check "its changes are listed as lost" sh -c "'$PLATTER' --store '$STORE' --json disks |
	jq -e 'select(.lost) | .disk == \"lab/clone\" and .written_bytes == 4096 and .process == $SERVER'"
check_exit "$EXIT_REFUSED" "not even with its number" platter publish lab/clone --lock "$lost"
check_exit "$EXIT_REFUSED" "a branch needs a new name" platter publish lab/clone lab/disk --lock "$lost"
check_exit "$EXIT_REFUSED" "changes of a served disk are not discarded" platter discard lab/clone --lock "$lost"
check "its changes are still there" qemu-io -f raw -c 'read -P 0x66 0 4k' "$(uri lab/clone)"
base=$(platter_json disks | jq -r .base)
check "its changes become a branch" platter publish lab/clone lab/branch --lock "$lost" --note 'what the sleeper wrote'
wait "$SERVER" 2>/dev/null || true
SERVER=
check "the new holder's version is unchanged" test "$before" = "$(platter_json show lab/clone | jq -r .score)"
platter export lab/branch "$WORK/branch" >/dev/null
cp "$WORK/waited" "$WORK/copy"
qemu-io -f raw -c 'write -P 0x66 0 4k' "$WORK/copy" >/dev/null
check "the branch equals the first holder's disk" cmp "$WORK/copy" "$WORK/branch"
origin=$(platter_json history lab/clone | jq -r "select(.score == \"$base\") | \"lab/clone@\(.number)\"")
platter_json show lab/branch >"$WORK/branch.json"
check "it records its origin" test "$origin" = "$(jq -r '"\(.cloned_from.image)@\(.cloned_from.number)"' "$WORK/branch.json")"
check "nothing is listed as lost any more" test -z "$(platter disks | tail -n +2)"
check_exit "$EXIT_MISSING" "and the number is unknown" platter publish lab/clone lab/other --lock "$lost"

check "the disk is served for writing again" serve --write --holder first lab/clone
qemu-io -f raw -c 'write -P 0x67 20m 4k' "$(uri lab/clone)" >/dev/null
stop KILL
check "after kill -9 the number of written bytes is listed" sh -c "'$PLATTER' --store '$STORE' --json disks |
	jq -es 'length == 1 and .[0].holder == \"first\" and .[0].written_bytes == 4096 and .[0].process == null'"
first=$(platter_json disks | jq -r .edit_lock)
platter lock steal lab/clone --holder second >/dev/null
check "the disk of a dead holder is listed as lost" sh -c "'$PLATTER' --store '$STORE' --json disks |
	jq -es '[.[] | select(.lost)] | length == 1 and .[0].edit_lock == $first and .[0].written_bytes == 4096 and .[0].process == null'"
check "and its changes are discarded" platter discard lab/clone --lock "$first"
check_exit "$EXIT_MISSING" "only once" platter discard lab/clone --lock "$first"
check "the new holder keeps the edit lock" sh -c "'$PLATTER' --store '$STORE' --json lock list | jq -e '.holder == \"second\"'"
platter lock release lab/clone --holder second >/dev/null

check "a disk is served, to be published under another name" serve --write lab/clone
check_exit "$EXIT_REFUSED" "publishing without changes is refused" platter publish lab/clone lab/other
qemu-io -f raw -c 'write -P 0x68 12m 4k' "$(uri lab/clone)" >/dev/null
before=$(platter_json show lab/clone | jq -r .score)
check "its changes are published under the other name" platter publish lab/clone lab/other
wait "$SERVER" 2>/dev/null || true
SERVER=
check "the edit has ended" test -z "$(platter lock list | tail -n +2)$(ls "$STORE/overlays")"
check "the image is unchanged" test "$before" = "$(platter_json show lab/clone | jq -r .score)"
platter export lab/other "$WORK/other" >/dev/null
check "the new image has the changes" qemu-io -f raw -c 'read -P 0x68 12m 4k' "$WORK/other"
check "a disk's changes are kept when its server ends" serve --write lab/clone
qemu-io -f raw -c 'write -P 0x69 24m 4k' "$(uri lab/clone)" >/dev/null
stop TERM
check "and published under another name without a server" platter publish lab/clone lab/third
check "which ends the edit as well" test -z "$(platter lock list | tail -n +2)$(ls "$STORE/overlays")"

# write_files IMAGE: mounts the served disk with nbdfuse and a loop device, and copies the same tree to it
write_files() {
	local fuse tries=0
	: >"$WORK/as-file"
	nbdfuse "$WORK/as-file" "$(uri "$1")" &
	fuse=$!
	until [ -s "$WORK/as-file" ]; do
		tries=$((tries + 1))
		[ "$tries" -lt 100 ] || return 1
		sleep 0.1
	done
	attach "$WORK/as-file"
	mount "$DEVICE" "$MNT"
	cp -a "$WORK/more" "$MNT/"
	echo "$1" >"$MNT/hostname"
	umount "$MNT"
	detach_loop "$DEVICE"
	umount "$WORK/as-file"
	wait "$fuse" || true
}
if need_root "mounting a served disk"; then
	file_tree "$WORK/more" 8 more
	platter clone lab/disk@1 two/a >/dev/null
	platter clone lab/disk@1 two/b >/dev/null
	check "two clones are served" serve --write two/a two/b
	for image in two/a two/b; do
		check "$image is mounted and gets the same files" write_files "$image"
		platter_json publish "$image" >"$WORK/${image#*/}.json"
		check "$image is clean when it is published" jq -e '.consistency == "clean"' "$WORK/${image#*/}.json"
	done
	check "the second costs at most a twentieth of the first" jq -es '.[1].new_stored_bytes * 20 <= .[0].new_stored_bytes and .[0].new_stored_bytes > 1000000' \
		"$WORK/a.json" "$WORK/b.json"
	stop TERM
	platter install two/b "$WORK/installed" >/dev/null
	check "its file system is clean" e2fsck -fn "$WORK/installed"
	check "the store is sound" platter check --read-data
fi

# A disk that is published while it stays attached reads as before, even in swap and in blocks that its file system
# considers free. A version that is published when the disk is detached lacks both.
rm -f "$WORK/swapping"
truncate -s 48M "$WORK/swapping"
printf 'label: gpt\nstart=2048, size=49152\nstart=51200, size=32768\n' | sfdisk -q "$WORK/swapping" >/dev/null
ext4_image "$WORK/part" 24 "$WORK/tree"
dd if="$WORK/part" of="$WORK/swapping" bs=1M seek=1 conv=notrunc,sparse status=none
truncate -s 16M "$WORK/swap"
mkswap -q "$WORK/swap"
dd if="$WORK/swap" of="$WORK/swapping" bs=1M seek=25 conv=notrunc,sparse status=none
platter capture "$WORK/swapping" lab/swapping >/dev/null
free=$(dumpe2fs "$WORK/part" 2>/dev/null | awk -F'[ -]+' '/^  Free blocks:/ { last = $NF } END { print last }')
free=$(((1 << 20) + free * $(dumpe2fs -h "$WORK/part" 2>/dev/null | awk '/^Block size/ { print $3 }') / 65536 * 65536 - 65536))
check "a disk with swap is served for writing" serve --write lab/swapping
check "pages are swapped out" qemu-io -f raw -c 'write -P 0x5a 28m 1m' -c flush "$(uri lab/swapping)"
check "and free blocks written" qemu-io -f raw -c "write -P 0x5b $free 64k" -c flush "$(uri lab/swapping)"
check "it is published and served on" platter publish lab/swapping
check "swapped pages are still there" qemu-io -r -f raw -c 'read -P 0x5a 28m 1m' "$(uri lab/swapping)"
check "and so are the contents of free blocks" qemu-io -r -f raw -c "read -P 0x5b $free 64k" "$(uri lab/swapping)"
stop KILL
check "after kill -9 it is served again" serve --write lab/swapping
check "with its swap" qemu-io -r -f raw -c 'read -P 0x5a 28m 1m' "$(uri lab/swapping)"
check "a page is swapped out" qemu-io -f raw -c 'write -P 0x5c 30m 4k' -c flush "$(uri lab/swapping)"
check "it is published and detached" platter detach lab/swapping --then publish
rm -f "$WORK/rest"
platter export lab/swapping "$WORK/rest" >/dev/null
check "that version lacks swapped pages" cmp -i $((28 << 20)):0 -n $((3 << 20)) "$WORK/rest" /dev/zero
check_exit "$EXIT_USAGE" "a process of attach takes nothing over" platter attach --nbd "$WORK/nbd.sock" --take-over lab/swapping
check_said "and says what does" 'platter node'
finish
