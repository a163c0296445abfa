#!/usr/bin/env bash
# tests/far-live.sh: writable disks of an origin, over a unix socket and over TLS. The serving process is killed during
# writes and publishing, and the origin is killed and restarted during reads and writes: no acknowledged write may be
# lost, and no version created twice. An edit lock taken over elsewhere fences. The file tree over FUSE and 9P within the
# limits of the access token. PLATTER_SEED selects the moments.
. "$(dirname "$0")/lib.sh"

case ${PLATTER_SIZE:-quick} in full) kills=40 ;; *) kills=4 ;; esac
TREE=$WORK/tree
SERVED=()
WAY=afar
mkdir "$TREE" "$WORK/loop"
suite_cleanup() {
	local process
	mountpoint -q "$MNT" && umount "$MNT"
	for device in "$WORK"/loops/*; do [ ! -e "$device" ] || detach_loop "/dev/${device##*/}"; done
	for process in $ORIGIN "${SERVED[@]}"; do kill -KILL "$process" 2>/dev/null; done
	wait 2>/dev/null
	umount -l "$TREE" 2>/dev/null
}

# serve NAME ARGUMENT...: runs `attach` with the origin in the background, and waits until it is attached or the tree
# exists. SERVER is its process id; NBD is at NAME.sock.
serve() {
	local name=$1 tries=0
	shift
	: >"$WORK/$name.log"
	# Not in a function, because $! must be the process to kill.
	if [ "$WAY" = afar ]; then
		"$PLATTER" --server "unix:$SOCKET" attach --nbd "$WORK/$name.sock" "$@" >"$WORK/$name.log" 2>&1 &
	else
		PLATTER_TOKEN=$TOKEN "$PLATTER" --server "https://127.0.0.1:$PORT" --fingerprint "$FINGERPRINT" attach --nbd "$WORK/$name.sock" \
			"$@" >"$WORK/$name.log" 2>&1 &
	fi
	SERVER=$!
	SERVED+=("$SERVER")
	until grep -q '^score ' "$WORK/$name.log" || [ -d "$TREE/import" ]; do
		tries=$((tries + 1))
		if [ "$tries" -gt 400 ] || ! kill -0 "$SERVER" 2>/dev/null; then
			cat "$WORK/$name.log"
			return 1
		fi
		sleep 0.05
	done
}
# end SIGNAL: sends the signal to the server, and waits for it
end() {
	kill "-$1" "$SERVER" && wait "$SERVER" 2>/dev/null
	SERVED=("${SERVED[@]/$SERVER/}")
}
uri() { echo "nbd+unix:///$2?socket=$WORK/$1.sock"; }
io() { qemu-io -f raw -c "$1" "$2"; }
# both COMMAND IMAGE: runs the qemu-io command on the served disk and on the copy
both() { io "$1" "$(uri one "$2")" && io "$1" "$WORK/copy"; }
same_as() { qemu-img compare -f raw -F raw "$1" "$(uri one "$2")"; }
versions() { platter_json history "$1" | wc -l; }
is_version() { rm -f "$WORK/exported" && platter export "$1" "$WORK/exported" && cmp "$2" "$WORK/exported"; }
no_twins() { [ -z "$(platter_json history "$1" | jq -r .score | sort | uniq -d)" ]; }
overlays() { find "$XDG_STATE_HOME/platter/far" -name '*.overlay' | wc -l; }

file_tree "$WORK/files" 12 far
ext4_image "$WORK/disk" 64 "$WORK/files"
platter init >/dev/null
platter capture "$WORK/disk" lab/disk >/dev/null
platter export lab/disk "$WORK/shown" >/dev/null
check "an origin answers" start_origin
TOKEN=$(origin_secret admin)
FINGERPRINT=$(origin_fingerprint)

# Write, kill, publish; over both transports.
for WAY in afar afar_tls; do
	image=lab/$WAY
	afar clone lab/disk "$image" >/dev/null
	cp --sparse=always "$WORK/shown" "$WORK/copy"
	check "$WAY: a disk is served for writing" serve one --write "$image"
	check "$WAY: writes arrive" both 'write -P 0x11 1m 300k' "$image"
	check "$WAY: and partial blocks" both 'write -P 0x22 5000 700' "$image"
	check "$WAY: and zeros" both 'write -z 2m 1m' "$image"
	check "$WAY: disks lists it" sh -c "$(declare -p PLATTER SOCKET | sed 's/declare --/export/'); \"\$PLATTER\" --server unix:\$SOCKET --json disks |
		jq -e '.disk == \"$image\" and .writable and .edit_lock > 0 and .written_bytes > 0 and (.process | type == \"number\")'"
	check_exit "$EXIT_REFUSED" "$WAY: nobody else can attach it for writing" "$WAY" attach --write --nbd "$WORK/other.sock" "$image" --holder other
	check_exit "$EXIT_REFUSED" "$WAY: nor capture to its image" "$WAY" capture "$WORK/disk" "$image"
	end KILL || true
	check "$WAY: after kill -9 it is served again" serve one --write "$image"
	check "$WAY: with all writes" same_as "$WORK/copy" "$image"
	check "$WAY: it is published while it is attached" "$WAY" publish "$image" --note 'while attached'
	check "$WAY: writing continues" both 'write -P 0x33 8m 64k' "$image"
	check "$WAY: and the disk is right" same_as "$WORK/copy" "$image"
	check "$WAY: it is published again" "$WAY" publish "$image"
	check_exit "$EXIT_REFUSED" "$WAY: publish without changes is refused" "$WAY" publish "$image"
	both 'write -P 0x34 9m 4k' "$image" >/dev/null
	check "$WAY: it is detached and published" "$WAY" detach "$image" --then publish
	wait "$SERVER" 2>/dev/null || true
	check "$WAY: the version equals the disk" is_version "$image" "$WORK/copy"
	check "$WAY: there are four versions" [ "$(versions "$image")" = 4 ]
	check "$WAY: no overlay is left" [ "$(overlays)" = 0 ]
	check "$WAY: and no edit lock" [ -z "$(afar lock list | tail -n +2)" ]
done
WAY=afar
check "a disk's changes are kept at the end" serve one --write lab/afar
io 'write -P 0x55 12m 128k' "$(uri one lab/afar)" >/dev/null
end TERM || true
check "a disk with unpublished changes is listed" sh -c "'$PLATTER' --server 'unix:$SOCKET' disks | grep -q lab/afar"
check "and discarded" afar discard lab/afar
check_exit "$EXIT_MISSING" "only once" afar discard lab/afar

# Killed during writes and publishing. A client notes which writes were acknowledged.
afar clone lab/disk lab/kill >/dev/null
# write_until_told FIRST: writes piece after piece until the server is killed
write_until_told() {
	local piece=$1
	while [ "$piece" -lt 800 ] && io "write -P $((piece % 250 + 1)) $((piece * 65536)) 64k" "$(uri one lab/kill)"; do
		piece=$((piece + 1))
		echo "$piece" >"$WORK/told"
	done >/dev/null 2>&1
}
# has_told DISK: the disk has every acknowledged piece
has_told() {
	local piece
	for piece in $(seq 0 $(($(cat "$WORK/told") - 1))); do echo "read -P $((piece % 250 + 1)) $((piece * 65536)) 64k"; done >"$WORK/reads"
	qemu-io -f raw "$1" <"$WORK/reads" >"$WORK/read.log" 2>&1 && ! grep -qi 'verification failed' "$WORK/read.log"
}
echo 0 >"$WORK/told"
kill_under_writes() {
	local writer publisher
	serve one --write lab/kill || return 1
	has_told "$(uri one lab/kill)" || { tail -n 5 "$WORK/read.log"; return 1; }
	write_until_told "$(cat "$WORK/told")" &
	writer=$!
	(
		sleep "0.$(printf %03d "$(number "publish $1" 500)")"
		afar publish lab/kill >/dev/null 2>&1 || true
	) &
	publisher=$!
	sleep "0.$(printf %03d "$((100 + $(number "kill $1" 800)))")"
	end KILL || true
	kill "$writer" 2>/dev/null || true
	wait "$writer" "$publisher" 2>/dev/null || true
}
for cycle in $(seq "$kills"); do check "kill $cycle under writes and publishing" kill_under_writes "$cycle"; done
serve one --write lab/kill >/dev/null
check "all $(cat "$WORK/told") acknowledged pieces are there" has_told "$(uri one lab/kill)"
io 'write -P 0x7e 60m 64k' "$(uri one lab/kill)" >/dev/null
check "it is published" afar detach lab/kill --then publish
check "the version is exported" sh -c "rm -f '$WORK/exported'; '$PLATTER' --store '$STORE' --quiet export lab/kill '$WORK/exported'"
check "and has every acknowledged piece" has_told "$WORK/exported"
check "no version exists twice" no_twins lab/kill

# The origin is killed and restarted, during reads, writes and publishing.
afar clone lab/disk lab/away >/dev/null
cp --sparse=always "$WORK/shown" "$WORK/copy"
check "a disk is served" serve one --write lab/away --cache 8
check "and written" both 'write -P 0x41 3m 1m' lab/away
stop_origin KILL
check "it is written while the origin is down" both 'write -P 0x42 5m 200k' lab/away
check "and the written range is read" io 'read -P 0x42 5m 200k' "$(uri one lab/away)"
check_exit "$EXIT_FAILED" "publishing fails" afar publish lab/away
check_said "and the message says that the changes are kept" 'changes are kept'
check "disks lists the local disk" sh -c "'$PLATTER' --server 'unix:$SOCKET' --json disks | jq -e '.disk == \"lab/away\" and (.lost | not)'"
(sleep 1 && exec "$PLATTER" --store "$STORE" serve --listen "unix:$SOCKET" --listen "127.0.0.1:$PORT" >>"$WORK/origin.log" 2>&1) &
ORIGIN=$!
check "reads wait for the origin" same_as "$WORK/copy" lab/away
check "then it is published" afar publish lab/away
check "and the version equals the disk" is_version lab/away "$WORK/copy"
end KILL || true
check "a disk is served with --publish-every 1s" serve one --write lab/away --publish-every 1s
stop_origin KILL
both 'write -P 0x43 6m 100k' lab/away >/dev/null
sleep 1.5
check "its log says that publishing failed" grep -q 'changes are kept' "$WORK/one.log"
start_origin
for _ in $(seq 600); do [ "$(versions lab/away)" -lt 3 ] || break; sleep 0.1; done
check "it publishes once the origin is back" is_version lab/away "$WORK/copy"
origin_under_publishing() {
	both "write -P $((0x50 + $1)) $((7 + $1))m 1m" lab/away >/dev/null || return 1
	(afar publish lab/away >/dev/null 2>&1 || true) &
	local publisher=$!
	sleep "0.$(printf %03d "$(number "origin $1" 400)")"
	stop_origin KILL
	start_origin
	wait "$publisher" || true
}
for cycle in 1 2 3; do check "the origin is killed during publishing $cycle" origin_under_publishing "$cycle"; done
both 'write -P 0x44 7m 100k' lab/away >/dev/null
check "the disk is detached and published" afar detach lab/away --then publish
check "and the version equals the disk" is_version lab/away "$WORK/copy"
check "no version exists twice" no_twins lab/away
stop_origin KILL
check_exit "$EXIT_FAILED" "nothing is served without the origin and without local changes" afar attach --write lab/away --nbd "$WORK/other.sock"
start_origin

# The edit lock is taken over by another machine, which has other overlays.
check "the first holder serves the disk" serve one --write lab/disk --holder first
io 'write -P 0x66 0 4k' "$(uri one lab/disk)" >/dev/null
FIRST=$SERVER
kill -STOP "$FIRST"
check_exit "$EXIT_REFUSED" "another machine with the same holder's name does not get its edit lock" \
	"$PLATTER" --server "unix:$SOCKET" attach --write --nbd "$WORK/other.sock" lab/disk --holder first --overlays "$WORK/namesake"
check_said "the message names the ways out" '--steal'
check "another machine steals the edit lock from a suspended holder" serve two --write --steal --holder second --on-detach publish lab/disk --overlays "$WORK/elsewhere"
check "the new holder writes" io 'write -P 0x77 16m 4k' "$(uri two lab/disk)"
end TERM || true
before=$(platter_json show lab/disk | jq -r .score)
kill -CONT "$FIRST"
SERVER=$FIRST
check_exit "$EXIT_MISSING" "the other machine has no changes of the first holder" afar publish lab/disk --overlays "$WORK/elsewhere"
check_exit "$EXIT_REFUSED" "the suspended holder can no longer publish" afar publish lab/disk
check_said "and the message suggests what to do" 'platter publish lab/disk NEW-NAME --lock'
lost=$(afar disks --json | jq -r 'select(.lost) | .edit_lock')
check "its changes are still there" io 'read -P 0x66 0 4k' "$(uri one lab/disk)"
end KILL || true
check "its changes become a branch" afar publish lab/disk lab/branch --lock "$lost"
check "the new holder's version is unchanged" [ "$before" = "$(platter_json show lab/disk | jq -r .score)" ]
cp --sparse=always "$WORK/shown" "$WORK/copy"
io 'write -P 0x66 0 4k' "$WORK/copy" >/dev/null
check "the branch equals the first holder's disk" is_version lab/branch "$WORK/copy"
"$PLATTER" --store "$WORK/store2" init >/dev/null
"$PLATTER" --store "$WORK/store2" capture "$WORK/disk" lab/disk --quiet >/dev/null
"$PLATTER" --store "$WORK/store2" serve --listen "unix:$WORK/second.sock" >/dev/null 2>&1 &
SERVED+=($!)
for _ in $(seq 600); do [ ! -S "$WORK/second.sock" ] || break; sleep 0.05; done
check_exit "$EXIT_REFUSED" "overlays of another store are refused" "$PLATTER" --server "unix:$WORK/second.sock" disks --overlays "$WORK/elsewhere"

# The file tree.
need_root "mounting the tree" || { finish; exit; }
WAY=afar_tls
score=$(platter_json show lab/afar | jq -r .score)
afar clone lab/disk@1 lab/mounted >/dev/null
check "the tree is served" serve one --fuse "$TREE" --9p "$WORK/9p.sock" --write lab/mounted
for _ in $(seq 600); do [ ! -d "$TREE/import" ] || break; sleep 0.05; done
check "it lists the images" sh -c "ls '$TREE' | grep -qx lab"
is_version lab/afar "$WORK/none" >/dev/null 2>&1 || true
check "an image read as a file has the right hash" [ "$(sha256sum <"$TREE/lab/afar/latest.raw")" = "$(sha256sum <"$WORK/exported")" ]
check "and its score" [ "$(cat "$TREE/lab/afar/latest.score")" = "$score" ]
check "it is also found by date" cmp "$TREE/by-date/$(date -u +%Y/%m/%d)/lab/afar.raw" "$WORK/exported"
check "a version is mounted by a loop device" sh -c "mount -o ro,loop,noload '$TREE/lab/kill/1.raw' '$MNT' && diff -r '$WORK/files' '$MNT' -x lost+found; rc=\$?; umount '$MNT'; exit \$rc"
afar clone lab/disk lab/news >/dev/null
sleep 2
check "a version published elsewhere appears within two seconds" cmp "$TREE/lab/news/1.raw" "$TREE/lab/disk/latest.raw"
cp --sparse=always "$WORK/disk" "$WORK/second"
debugfs -w -R "write $WORK/disk other" "$WORK/second" >/dev/null 2>&1 || true
check "cp into import/ captures over the network" sh -c "mkdir -p '$TREE/import/lab' && cp '$WORK/second' '$TREE/import/lab/second.raw'"
platter export lab/second "$WORK/second-shown" >/dev/null || true
check "with its bytes" cmp "$TREE/lab/second/latest.raw" "$WORK/second-shown"
check "cp of a version into import/ is a clone" cp "$TREE/lab/second/1.raw" "$TREE/import/lab/copy.raw"
check "of the same score" [ "$(platter_json show lab/copy | jq -r .score)" = "$(platter_json show lab/second | jq -r .score)" ]
check "mkdir and mv rename" sh -c "mkdir '$TREE/attic' && mv '$TREE/lab/copy' '$TREE/attic/copy'"
check "also at the origin" platter show attic/copy
check "rm -r forgets" rm -r "$TREE/attic/copy"
check_exit "$EXIT_MISSING" "also at the origin" platter show attic/copy
live=$TREE/lab/mounted/live.raw
attach "$live"
write_files() { mount "$DEVICE" "$MNT" && cp -r "$WORK/files" "$MNT/again" && umount "$MNT"; }
check "a live disk is mounted and written" write_files
detach_loop "$DEVICE"
check "and published" afar publish lab/mounted
sleep 1.1 # a name is believed for a second
check "its version is in the tree" cmp "$live" "$TREE/lab/mounted/latest.raw"
check "its file system is sound" e2fsck -fn "$TREE/lab/mounted/latest.raw"
if [ -n "$(type -P diodls)" ]; then
	check "diodls lists it over 9P" sh -c "diodls -s '$WORK/9p.sock' -a / lab/afar | grep -q latest.raw"
	diodcat -s "$WORK/9p.sock" -a / lab/afar/latest.raw >"$WORK/by-9p" 2>"$LOG" || true
	check "diodcat reads it over 9P" cmp "$WORK/by-9p" "$WORK/exported"
else
	skip "9P with diod's clients: no diodls"
fi
stop_origin KILL
check "names are still listed without the origin" ls "$TREE/lab/afar"
start_origin
check "and files are read once it is back" cmp "$TREE/lab/second/latest.raw" "$WORK/second-shown"
end TERM || true
check "nothing stays mounted" sh -c "! mountpoint -q '$TREE'"
afar discard lab/mounted >/dev/null 2>&1 || true
for role in read write; do
	TOKEN=$(origin_secret "$role" 'lab/*')
	check "$role: the tree is served" serve one --write --fuse "$TREE"
	check "$role: an image is read" cmp "$TREE/lab/afar/latest.raw" "$WORK/exported"
	check_exit 1 "$role: rm is refused" rm "$TREE/lab/second/1.raw"
	check_said "$role: with a clear message" 'not permitted'
	check_exit 1 "$role: so is mv" mv "$TREE/lab/second" "$TREE/lab/third"
	check_said "$role: with a clear message" 'not permitted'
	if [ "$role" = read ]; then
		check_exit 1 "read: and cp into import/" cp "$WORK/second" "$TREE/import/lab/third.raw"
		check_said "read: with a clear message" 'not permitted'
		check_exit "$EXIT_REFUSED" "read: attach --write is refused" afar_tls attach --write lab/disk --nbd "$WORK/other.sock"
	else
		check "write: cp into import/" cp "$WORK/second" "$TREE/import/lab/third.raw"
	fi
	end TERM || true
done
stop_origin TERM
check "the store is sound" platter check --read-data
finish
