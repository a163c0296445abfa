#!/usr/bin/env bash
# tests/kill9-live.sh [KILLS]
#
# ext4 and XFS on loop devices over live disks of one server, which is killed with SIGKILL while files are written and
# synced. After each kill the server restarts, both file systems replay their journals, every synced file has its bytes,
# and the file system checkers find nothing. PLATTER_SEED selects the moments. Kills: 200 in full, 4 in quick.
. "$(dirname "$0")/lib.sh"

need_root "mounting file systems over live disks" || { finish; exit 0; }
case ${PLATTER_SIZE:-quick} in full) kills=200 ;; *) kills=4 ;; esac
kills=${1:-$kills}
readonly TYPES="ext4 xfs" TREE=$WORK/tree
mkdir "$TREE" "$WORK/ext4" "$WORK/xfs"
SERVER=
declare -A LOOP=()

# Removes whatever a kill left: file systems, devices, the tree, so that nothing disturbs the next cycle.
take_down() {
	local type
	for type in $TYPES; do
		# Its users are ended by the same kill, a moment later.
		for _ in $(seq 100); do
			grep -qF " $WORK/$type " /proc/self/mountinfo || break
			umount "$WORK/$type" || sleep 0.05
		done
		[ -z "${LOOP[$type]:-}" ] || detach_loop "${LOOP[$type]}"
		LOOP[$type]=
	done
	umount -l "$TREE" 2>/dev/null || true
}
suite_cleanup() {
	[ -z "$SERVER" ] || kill -9 "$SERVER" 2>/dev/null
	take_down
}

serve() {
	"$PLATTER" --store "$STORE" attach --write kill/ext4 kill/xfs --fuse "$TREE" >"$WORK/server.log" 2>&1 &
	SERVER=$!
	local tries=0
	until [ -e "$TREE/kill/ext4/live.raw" ] && [ -e "$TREE/kill/xfs/live.raw" ]; do
		tries=$((tries + 1))
		[ "$tries" -lt 400 ] && kill -0 "$SERVER" 2>/dev/null || return 1
		sleep 0.02
	done
}
# bring_up TYPE: attaches the device and mounts it, which replays the journal
bring_up() {
	attach "$TREE/kill/$1/live.raw"
	LOOP[$1]=$DEVICE
	mount "$DEVICE" "$WORK/$1"
}
is_sound() {
	case $1 in
	ext4) e2fsck -fn "$2" ;;
	xfs) xfs_repair -n "$2" ;;
	esac
}
# write_files TYPE CYCLE: writes files until it is killed, and notes each one after it was synced
write_files() {
	local n=0 file
	while :; do
		n=$((n + 1))
		file=$WORK/$1/$2-$n
		random $(($(number "size $2 $n" 300000) + 1)) "$1 $2 $n" >"$file" && sync "$file" "$WORK/$1" || return 0
		echo "$(sha256sum <"$file" | cut -d ' ' -f 1)  $file" >>"$WORK/synced-$1"
		# Old files are removed, so that the disk does not fill and blocks are reused.
		if [ "$n" -gt 20 ]; then
			grep -v -- "/$2-$((n - 20))\$" "$WORK/synced-$1" >"$WORK/kept-$1"
			mv "$WORK/kept-$1" "$WORK/synced-$1"
			rm "$WORK/$1/$2-$((n - 20))" || return 0
		fi
	done
}

truncate -s 400M "$WORK/disk"
mke2fs -q -t ext4 "$WORK/disk"
platter init >/dev/null
platter capture "$WORK/disk" kill/ext4 >/dev/null
rm "$WORK/disk" && truncate -s 400M "$WORK/disk"
mkfs.xfs -q "$WORK/disk"
platter capture "$WORK/disk" kill/xfs >/dev/null
rm "$WORK/disk"
: >"$WORK/synced-ext4"
: >"$WORK/synced-xfs"

bad=0
synced=0
complain() {
	bad=$((bad + 1))
	echo "kill $cycle: $*" | tee -a "$WORK/complaints"
	tail -n 5 "$LOG"
}
for cycle in $(seq 0 "$kills"); do
	serve || { complain "the server does not come"; break; }
	for type in $TYPES; do
		bring_up "$type" >"$LOG" 2>&1 || { complain "$type does not mount"; break 2; }
		[ ! -s "$WORK/synced-$type" ] || sha256sum --quiet -c "$WORK/synced-$type" >"$LOG" 2>&1 || complain "$type lost what was synced"
		synced=$((synced + $(wc -l <"$WORK/synced-$type")))
		umount "$WORK/$type"
		is_sound "$type" "${LOOP[$type]}" >"$LOG" 2>&1 || complain "$type is not sound"
		mount "${LOOP[$type]}" "$WORK/$type"
		# The files of the last round make room for this one.
		: >"$WORK/synced-$type"
		find "$WORK/$type" -type f -delete
	done
	[ "$cycle" -lt "$kills" ] || break
	writers=()
	for type in $TYPES; do
		write_files "$type" "$cycle" 2>/dev/null &
		writers+=($!)
	done
	sleep "0.$(printf '%03d' $((200 + $(number "delay $cycle" 700))))"
	kill -9 "$SERVER"
	wait "$SERVER" 2>/dev/null || true
	wait "${writers[@]}" || true
	take_down
done
kill "$SERVER" 2>/dev/null || true
take_down
wait "$SERVER" 2>/dev/null || true
SERVER=
[ ! -e "$WORK/complaints" ] || cp "$WORK/complaints" "$LOG"
if [ "$bad" = 0 ] && [ "$synced" -gt "$kills" ]; then
	ok "$kills kills, seed $SEED: all $synced synced files of ext4 and XFS were there, and both file systems sound"
else
	not_ok "$kills kills, seed $SEED: $bad errors, $synced synced files checked"
fi
check "the store is sound" platter check
finish
