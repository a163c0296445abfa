#!/usr/bin/env bash
# tests/private.sh: data of disks is accessible to its owner only. Checks all files made by every command under umask 000
# and 022: no other user may open any of them, read a disk, hold a lock or connect. Wider modes are reported and fixed.
. "$(dirname "$0")/lib.sh"

need_root "another user" || { finish; exit 0; }
SERVER=
NODE=
ORIGIN=
suite_cleanup() {
	local process
	for process in $SERVER $NODE $ORIGIN $(jobs -p); do kill -KILL "$process" 2>/dev/null; done
	umount -l "$MNT" 2>/dev/null
}
stranger() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
end() { # NAME: of a variable that has a process
	local -n process=$1
	kill "$process"
	wait "$process" 2>/dev/null || true
	process=
}
# nobody_else DIR...: other users may open no file, directory or socket in them
nobody_else() {
	local found
	found=$(find "$@" -mindepth 1 ! -type l -perm /077 -printf '%m %y %p\n')
	[ -z "$found" ] || { printf '%s\n' "$found"; return 1; }
}
# nothing_readable DIR: another user can read nothing, and cannot hold the writer's lock
nothing_readable() {
	! stranger find "$1" -type f -readable 2>/dev/null | grep . || return 1
	! stranger flock -n "$1/store/lock" true 2>/dev/null
}

# The parent directories must not be what denies access.
chmod 711 "$WORK"
random 3145728 private >"$WORK/disk"
random 1048576 other >"$WORK/other"

# all_commands DIR: runs commands that create files in DIR
all_commands() {
	local dir=$1
	STORE=$dir/store SOCKET=$dir/origin.sock
	export XDG_STATE_HOME=$dir/state
	platter init
	platter capture --raw "$WORK/disk" lab/disk
	platter capture --raw "$WORK/other" lab/other
	platter clone lab/disk lab/copy
	platter rename lab/copy lab/moved
	platter forget lab/moved@1
	platter lock take lab/other
	platter lock release lab/other
	platter export lab/disk "$dir/exported"
	platter install lab/disk "$dir/installed"
	# A disk that is written, recorded, published and imported; an overlay with unpublished changes.
	start_server lab/disk --write --nbd "$dir/nbd.sock" --fuse "$MNT"
	qemu-io -f raw -c 'write -P 7 0 64k' "nbd+unix:///lab/disk?socket=$dir/nbd.sock"
	platter publish lab/disk
	qemu-io -f raw -c 'write -P 8 0 64k' "nbd+unix:///lab/disk?socket=$dir/nbd.sock"
	exec 8>"$MNT/import/new.raw"
	cat "$WORK/other" >&8
	nobody_else "$dir"
	exec 8>&-
	end SERVER
	start_server lab/other --nbd "$dir/nbd.sock" --record "$dir/trace"
	qemu-io -r -f raw -c 'read 0 1M' "nbd+unix:///lab/other?socket=$dir/nbd.sock"
	end SERVER
	platter hoard import "$dir/trace" lab/other
	platter check --read-data
	platter rebuild
	# An origin, its local caches, and a node.
	start_origin
	origin_secret admin >/dev/null
	afar capture --raw "$WORK/other" far/other
	afar export lab/other "$dir/exported-from-afar" --cache-dir "$dir/cache"
	"$PLATTER" node --origin "unix:$SOCKET" --cache "$dir/node" lab/other >"$WORK/node.log" 2>&1 &
	NODE=$!
	until_true 30 "$PLATTER" disks --node "$dir/node" --quiet
	until_true 30 nbdinfo --size "nbd+unix:///lab/other?socket=$dir/node/nbd.sock"
	"$PLATTER" --server "unix:$SOCKET" --quiet attach far/other --write --nbd "$dir/far.sock" >"$WORK/far.log" 2>&1 &
	SERVER=$!
	until_true 30 qemu-io -f raw -c 'write -P 9 0 64k' "nbd+unix:///far/other?socket=$dir/far.sock"
	nobody_else "$dir"
	nothing_readable "$dir"
	end SERVER
	end NODE
	end ORIGIN
}
for mask in 000 022; do
	dir=$WORK/made-$mask
	mkdir -m 755 "$dir"
	# Not as a condition, because the shell would then continue after a failing command.
	(
		trap 'code=$?; set +e; suite_cleanup; wait; exit $code' EXIT
		umask "$mask"
		all_commands "$dir"
	) >"$LOG" 2>&1 &
	code=0
	wait $! || code=$?
	name="umask $mask: every command does its work, and nothing of it is another user's"
	if [ "$code" = 0 ]; then ok "$name"; else not_ok "$name"; fi
	check "umask $mask: other users may open no created file" nobody_else "$dir"
	check "umask $mask: another user can read nothing and hold no lock" nothing_readable "$dir"
	check "umask $mask: check finds nothing" test "$("$PLATTER" --store "$dir/store" --json check | jq -r .verdict)" = clean
done

# TCP ports have no file mode: a client must be of the same user, or root.
PORT=$((20000 + SRANDOM % 12000))
STORE=$WORK/made-022/store
# The script is passed on standard input, because another user may not read the tests.
is_refused() { ! stranger "$@" && "$@"; }
asks_9p() { "$@" /usr/bin/python3 - "127.0.0.1:$((PORT + 1))" <"$TESTS/ninep_changes.py"; }
is_refused_9p() { ! asks_9p stranger && asks_9p env; }
check "a disk is served on TCP ports of this machine" start_server lab/disk --nbd "127.0.0.1:$PORT" --9p "127.0.0.1:$((PORT + 1))"
check "NBD accepts only the same user" is_refused nbdinfo --size "nbd://127.0.0.1:$PORT/lab/disk"
check "9P accepts only the same user" is_refused_9p
[ -z "$(type -P diodcat)" ] || check "diodcat of another user is rejected" is_refused diodcat -s "127.0.0.1:$((PORT + 1))" -a / lab/disk/1.score
check "the server logs the user" grep -q 'user 65534' "$WORK/server.log"
end SERVER
check "a disk is served with --insecure-loopback" start_server lab/disk --nbd "127.0.0.1:$PORT" --9p "127.0.0.1:$((PORT + 1))" --insecure-loopback
check "then NBD accepts other users" stranger nbdinfo --size "nbd://127.0.0.1:$PORT/lab/disk"
check "and so does 9P" asks_9p stranger
end SERVER

# Wide modes are reported, which is not damage, and fixed.
STORE=$WORK/made-022/store
chmod 755 "$STORE" "$STORE/packs"
chmod 644 "$STORE/lock" "$STORE/catalog.sqlite"
check_exit 0 "wider modes are not damage" platter check
check_said "but they are reported" 'exposed .*files and directories'
check_said "with a remedy" 'go-rwx'
check "also as JSON" jq -e '.verdict == "exposed" and .findings[0].severity == "exposed"' <(platter_json check)
check "a writer restricts the mode of its lock" sh -c "'$PLATTER' --store '$STORE' -q clone lab/disk lab/again && [ \$(stat -c %a '$STORE/lock') = 600 ]"
cannot_lock() { ! stranger flock -n "$STORE/lock" true; }
check "another user cannot hold it" cannot_lock
check "check --fix-modes fixes them" platter check --fix-modes
check "all of them" nobody_else "$WORK/made-022"
check "and check finds nothing" test "$(platter_json check | jq -r .verdict)" = clean
finish
