#!/usr/bin/env bash
# tests/steal.sh [POINTS]: the holder of an edit lock is stopped (SIGSTOP) at random moments during writes and publishing;
# another holder takes the lock over, writes and publishes; then the first one continues. It must be refused, the new
# version must stay, and all acknowledged writes of the first one must be in its branch. PLATTER_SEED selects the moments.
. "$(dirname "$0")/lib.sh"

POINTS=${1:-20}
LOSER=
WINNER=
suite_cleanup() {
	local process
	for process in $LOSER $WINNER; do kill -KILL "$process" 2>/dev/null; done
}

# serve NAME IMAGE OPTION...: serves the image in the background; its process is $SERVED
serve() {
	local name=$1 image=$2 tries=0
	shift 2
	rm -f "$WORK/$name.log"
	"$PLATTER" --store "$STORE" attach --write --holder "$name" --nbd "$WORK/$name.sock" "$@" "$image" >"$WORK/$name.log" 2>&1 &
	SERVED=$!
	until grep -qs '^score ' "$WORK/$name.log"; do
		tries=$((tries + 1))
		[ "$tries" -lt 200 ] && kill -0 "$SERVED" 2>/dev/null || return 1
		sleep 0.05
	done
}
uri() { echo "nbd+unix:///$2?socket=$WORK/$1.sock"; }
score() { platter_json show "$1" | jq -r .score; }

# write_until_told IMAGE: writes pieces of 64 KiB, and notes how many were acknowledged
write_until_told() {
	local written=0
	while [ "$written" -lt 400 ] && qemu-io -f raw -c "write -P $((written % 250 + 1)) $((written * 65536)) 64k" "$(uri loser "$1")"; do
		written=$((written + 1))
		echo "$written" >"$WORK/told"
	done >/dev/null 2>&1
}

# has_told FILE: the file has every acknowledged piece
has_told() {
	local piece told
	told=$(cat "$WORK/told")
	for piece in $(seq 0 $((told - 1))); do echo "read -P $((piece % 250 + 1)) $((piece * 65536)) 64k"; done >"$WORK/reads"
	[ "$told" -gt 0 ] || return 0
	qemu-io -f raw "$1" <"$WORK/reads" >"$WORK/read.log" 2>&1 && ! grep -qi 'verification failed' "$WORK/read.log"
}

# point NUMBER: one test with the holder stopped at one moment
point() {
	local point=$1 image=lab/disk$1 writer publisher lost before published base
	platter clone lab/disk "$image" >/dev/null
	echo 0 >"$WORK/told"
	serve loser "$image" || return 1
	LOSER=$SERVED
	write_until_told "$image" &
	writer=$!
	(
		sleep "0.$(printf %03d "$(number "publish $point" 300)")"
		"$PLATTER" --store "$STORE" --quiet publish "$image" >"$WORK/publish.log" 2>&1 || true
	) &
	publisher=$!
	sleep "0.$(printf %03d "$(number "stop $point" 700)")"
	kill -STOP "$LOSER"
	# A process that was stopped while it held the store's lock keeps it until it continues: until then, nobody else can
	# change anything.
	if ! serve winner "$image" --steal --on-detach publish; then
		kill -CONT "$LOSER"
		serve winner "$image" --steal --on-detach publish || return 1
		LOCKED=$((LOCKED + 1))
	fi
	WINNER=$SERVED
	qemu-io -f raw -c "write -P 251 60m 64k" "$(uri winner "$image")" >/dev/null || return 1
	kill -TERM "$WINNER"
	wait "$WINNER" || return 1
	WINNER=
	before=$(score "$image")
	kill -CONT "$LOSER"
	wait "$publisher"
	kill "$writer" 2>/dev/null || true
	wait "$writer" 2>/dev/null || true
	rm -f "$WORK/branch" "$WORK/won"
	published=0
	platter publish "$image" >"$WORK/refused.log" 2>&1 || published=$?
	[ "$published" = "$EXIT_REFUSED" ] || { cat "$WORK/refused.log"; return 1; }
	[ "$before" = "$(score "$image")" ] || { echo "the winner's version is gone"; return 1; }
	# The first one: a new holder that came while the store was locked may be listed as well.
	lost=$(platter_json disks | jq -r "select(.lost and .disk == \"$image\") | .edit_lock" | head -n 1)
	[ -n "$lost" ] || { echo "nothing is listed as lost"; return 1; }
	if [ $((point % 2)) = 0 ]; then
		# Also after the process has ended.
		kill -KILL "$LOSER"
		wait "$LOSER" 2>/dev/null || true
		LOSER=
	fi
	if platter publish "$image" "$image-branch" --lock "$lost"; then
		platter export "$image-branch" "$WORK/branch" || return 1
	else
		# There are no changes above what it published before the lock was taken over, if it published.
		NOTHING=$((NOTHING + 1))
		if grep -q score "$WORK/publish.log"; then base=$image@2; else base=$image@1; fi
		platter export "$base" "$WORK/branch" || return 1
	fi
	has_told "$WORK/branch" || { echo "the branch lacks what was written"; return 1; }
	[ "$before" = "$(score "$image")" ] || { echo "the winner's version is gone"; return 1; }
	platter export "$image" "$WORK/won" && qemu-io -f raw -c 'read -P 251 60m 64k' "$WORK/won" | tee -a "$WORK/read.log" | grep -v failed >/dev/null || return 1
	if [ -n "$LOSER" ]; then
		kill -TERM "$LOSER" 2>/dev/null || true
		wait "$LOSER" 2>/dev/null || true
		LOSER=
	fi
	platter discard "$image" --lock "$lost" >/dev/null 2>&1 || true
}

LOCKED=0
NOTHING=0
random $((64 << 20)) steal >"$WORK/disk"
platter init
platter capture --raw "$WORK/disk" lab/disk >/dev/null
for n in $(seq "$POINTS"); do
	if point "$n" >"$LOG" 2>&1; then ok "point $n"; else not_ok "point $n"; fi
	for process in $LOSER $WINNER; do kill -KILL "$process" 2>/dev/null || true; done
	LOSER=
	WINNER=
done
echo "# $LOCKED stopped with the store's lock, $NOTHING with nothing written since their last version"
check "the store is sound" platter check --read-data
finish
