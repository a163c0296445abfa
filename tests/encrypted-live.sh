#!/usr/bin/env bash
# tests/encrypted-live.sh: writable disks of an encrypted store: written, killed, published, cloned and discarded. A marker that
# clients write is in no file of the store.
. "$(dirname "$0")/lib.sh"

SERVER=
suite_cleanup() { [ -z "$SERVER" ] || kill -9 "$SERVER" 2>/dev/null; }

MARKER="the plaintext marker of seed $SEED"
export PLATTER_UNLOCK_FILE=$WORK/key
files_with_marker() { grep -rlaF -- "$MARKER" "$1"; }
no_marker() { ! files_with_marker "$1"; }
locked() { env -u PLATTER_UNLOCK_FILE setsid "$PLATTER" --store "$STORE" --quiet "$@" </dev/null; }
serve() { start_server --nbd "$WORK/nbd.sock" "$@"; }
uri() { echo "nbd+unix:///$1?socket=$WORK/nbd.sock"; }
same_as() { qemu-img compare -f raw -F raw "$1" "$(uri "$2")"; }
# both COMMAND IMAGE: runs the qemu-io command on the served disk and on the copy
both() { qemu-io -f raw -c "$1" "$(uri "$2")" && qemu-io -f raw -c "$1" "$WORK/copy"; }

# Blocks that do not compress, with the marker in each sector.
marked() {
	random "$1" "$2" >"$WORK/marked"
	for ((at = 0; at < $1 / 512; at++)); do
		printf '%s' "$MARKER" | dd of="$WORK/marked" bs=512 seek="$at" conv=notrunc status=none
	done
}
random 4194304 "encrypted live" >"$WORK/disk"
marked 65536 "encrypted live 1"
cp "$WORK/disk" "$WORK/copy"

check "a plain store" "$PLATTER" --store "$WORK/plain" init
check "has the disk" "$PLATTER" --store "$WORK/plain" capture --raw "$WORK/disk" lab/disk
"$PLATTER" --store "$WORK/plain" attach --write lab/disk --nbd "$WORK/plain.sock" >"$WORK/plain.log" 2>&1 &
plain=$!
until_true 60 test -S "$WORK/plain.sock"
check "is written" qemu-io -f raw -c "write -s $WORK/marked 64k 64k" "nbd+unix:///lab/disk?socket=$WORK/plain.sock"
check "and its overlay holds the marker, so the searches below can find it" files_with_marker "$WORK/plain/overlays"
kill "$plain"
wait "$plain" || :

check "an encrypted store" platter init --encrypt --unlock-file "$PLATTER_UNLOCK_FILE"
check "has the disk, too" platter capture --raw "$WORK/disk" lab/disk
check_exit "$EXIT_REFUSED" "without the key, no disk is written" timeout -s KILL 60 env -u PLATTER_UNLOCK_FILE setsid "$PLATTER" --store "$STORE" attach --write lab/disk --nbd "$WORK/nbd.sock" </dev/null
check_said "and what is missing is named" 'unlock-file'
check "and no lock is held" test -z "$(platter_json lock list)"
check "with the key, the disk is written" serve --write lab/disk
check "whole blocks" both "write -s $WORK/marked 64k 64k" lab/disk
check "parts of blocks" both "write -s $WORK/marked 300k 1536" lab/disk
check "after a flush, in place" both "flush" lab/disk
check "and another" both "flush" lab/disk
check "less than a block" both "write -s $WORK/marked 70k 1k" lab/disk
check "zeros" both 'write -z 100k 8k' lab/disk
check "discards" qemu-io -f raw -c 'discard 2m 64k' "$(uri lab/disk)"
qemu-io -f raw -c 'write -z 2m 64k' "$WORK/copy" >/dev/null
check "the disk has all writes" same_as "$WORK/copy" lab/disk
check "the marker is in no file of the store" no_marker "$STORE"
stop KILL
check "after kill -9, the number of written bytes is listed without the key" sh -c "env -u PLATTER_UNLOCK_FILE '$PLATTER' --store '$STORE' --json disks | jq -es '.[0].written_bytes > 0'"
check_exit "$EXIT_REFUSED" "without the key, the changes are not published" locked publish lab/disk
check_said "and what is missing is named" 'unlock-file'
check "the disk is served again" serve --write lab/disk
check "with all writes" same_as "$WORK/copy" lab/disk
check "it is published while it is attached" platter publish lab/disk
check "and written again" both "write -s $WORK/marked 1m 64k" lab/disk
check "and is right" same_as "$WORK/copy" lab/disk
check "and detached and published" platter detach lab/disk --then publish
wait "$SERVER" 2>/dev/null || true
SERVER=
check "no overlay is left" sh -c "[ -z \"\$(ls '$STORE/overlays')\" ]"
check "the version is exported" platter export lab/disk "$WORK/exported"
check "and equals the disk" cmp "$WORK/copy" "$WORK/exported"
check "the marker is still in no file" no_marker "$STORE"

check "a clone is made" platter clone lab/disk lab/clone
check "and served for writing" serve --write lab/clone
check "and written" qemu-io -f raw -c "write -s $WORK/marked 3m 64k" "$(uri lab/clone)"
check "its changes are not in the original" sh -c "'$PLATTER' --store '$STORE' export lab/disk - | cmp - '$WORK/copy'"
stop TERM
check "its changes wait" sh -c "'$PLATTER' --store '$STORE' disks | grep -q lab/clone"
check "the marker is in no file of them" no_marker "$STORE"
check "and are published without a server" platter publish lab/clone
qemu-io -f raw -c "write -s $WORK/marked 3m 64k" "$WORK/copy" >/dev/null
check "the clone is exported" platter export lab/clone "$WORK/clone"
check "and equals its disk" cmp "$WORK/copy" "$WORK/clone"
check "a disk is written and discarded" serve --write lab/clone
check "after a write" qemu-io -f raw -c "write -s $WORK/marked 0 64k" "$(uri lab/clone)"
stop TERM
check "its changes are discarded" platter discard lab/clone
check "and no overlay is left" sh -c "[ -z \"\$(ls '$STORE/overlays')\" ]"

check "the marker is nowhere" no_marker "$STORE"
check "and the store is sound" platter check --read-data

finish
