#!/usr/bin/env bash
# tests/delta.sh
#
# Installs onto targets that already hold a part of the disk: the previous version, the same files at other places, what a killed
# install left, other contents. Whatever the target held, the result must be that of a plain install onto an equal target, byte for
# byte, and only what is missing may be fetched.
. "$(dirname "$0")/lib.sh"

# make_disk FILE TREE SECTOR [MKE2FS-OPTION...]: makes a disk of 160 MiB with a GPT and a filesystem with these files
make_disk() {
	local disk=$1 tree=$2 sector=$3
	shift 3
	rm -f "$WORK/part" "$disk"
	truncate -s 156M "$WORK/part"
	mke2fs -q -t ext4 -b 4096 "$@" -d "$tree" "$WORK/part"
	truncate -s 160M "$disk"
	if [ "$sector" = 4096 ]; then
		attach "$disk" --sector-size 4096
		printf 'label: gpt\nstart=256, size=39936\n' | sfdisk -q --no-reread --no-tell-kernel "$DEVICE"
		detach_loop "$DEVICE"
	else
		printf 'label: gpt\nstart=2048, size=319488\n' | sfdisk -q "$disk"
	fi
	dd if="$WORK/part" of="$disk" bs=1M seek=1 conv=notrunc,sparse status=none
}

# change_disk FROM TO: the next version: a file is removed, one is added, one is replaced
change_disk() {
	cp --sparse=always "$1" "$2"
	dd if="$1" of="$WORK/part" bs=1M skip=1 count=156 status=none
	random 5000000 added >"$WORK/added"
	random 1048576 replaced >"$WORK/replaced"
	printf 'rm random-1.bin\nrm random-2.bin\nwrite %s added.bin\nwrite %s random-2.bin\n' "$WORK/added" "$WORK/replaced" |
		debugfs -w -f - "$WORK/part" >/dev/null 2>&1
	dd if="$WORK/part" of="$2" bs=1M seek=1 conv=notrunc status=none
}

fact() { jq -r "$1" "$WORK/report"; }
at_most() { awk -v value="${1:?}" -v most="${2:?}" 'BEGIN { if (value > most) print value " is more than " most; exit value > most }'; }

# same_as_plain NAME VERSION TARGET OPTION...: a delta install to the file leaves the same bytes as a plain install to a copy of it.
# Leaves the reports in $WORK/report and $WORK/plain.json.
same_as_plain() {
	local name=$1 version=$2 target=$3
	shift 3
	cp --sparse=always "$target" "$WORK/plain"
	platter_json install "$version" "$WORK/plain" --yes --no-delta --force not-a-disk "$@" >"$WORK/plain.json"
	check "$name: it succeeds" platter_json install "$version" "$target" --yes --force not-a-disk --delta "$@"
	cp "$LOG" "$WORK/report"
	check "$name: the result of a plain install" cmp "$target" "$WORK/plain"
}

tree=$WORK/tree
file_tree "$tree" 2 delta
for n in $(seq 90); do random 1048576 "delta $n" >"$tree/random-$n.bin"; done
platter init >/dev/null
make_disk "$WORK/one" "$tree" 512 -N 4000
change_disk "$WORK/one" "$WORK/two"
make_disk "$WORK/moved" "$tree" 512 -N 30000
platter capture "$WORK/one" lab/disk >/dev/null
platter_json capture "$WORK/two" lab/disk >"$WORK/capture"
new_bytes=$(jq .new_stored_bytes "$WORK/capture")
platter capture "$WORK/moved" lab/moved >/dev/null

# The previous version.
for free in skip zero; do
	cp --sparse=always "$WORK/one" "$WORK/target"
	same_as_plain "onto the previous version, --free $free" lab/disk "$WORK/target" --free "$free"
	check "onto the previous version, --free $free: at most 1.1 of the frames that differ are fetched" \
		at_most "$(fact .fetched_bytes)" "$((new_bytes * 11 / 10))"
done
cp --sparse=always "$WORK/one" "$WORK/target"
same_as_plain "onto the previous version, --verify" lab/disk "$WORK/target" --verify
check "--verify compares everything, also what was kept" \
	[ "$(fact .compared)" = "$(jq -r .compared "$WORK/plain.json")" ]

# Without an option, samples decide.
cp --sparse=always "$WORK/one" "$WORK/target"
check "a target with a similar disk is recognized" platter_json install lab/disk "$WORK/target" --yes
cp "$LOG" "$WORK/report"
check "a target with a similar disk is recognized: kept" [ "$(fact '.delta.kept_bytes > 80000000')" = true ]
random 167772160 other >"$WORK/target"
check "a target full of other data is not compared" \
	platter_json install lab/disk "$WORK/target" --yes --force not-a-disk
cp "$LOG" "$WORK/report"
check "a target full of other data is not compared: no delta" [ "$(fact .delta)" = null ]

# Other data, but compared anyway; a longer and an equal target.
random 167772160 other >"$WORK/target"
same_as_plain "a target full of other data" lab/disk "$WORK/target"
cp --sparse=always "$WORK/one" "$WORK/target"
truncate -s 171M "$WORK/target"
same_as_plain "a longer target" lab/disk "$WORK/target" --free zero
check "a longer target: the backup GPT was moved" [ "$(fact .backup_gpt_moved)" = true ]
cp "$WORK/plain" "$WORK/target"
same_as_plain "a longer target that already has the disk" lab/disk "$WORK/target"
check "a longer target that already has the disk: nearly nothing is fetched" at_most "$(fact .fetched_bytes)" 300000
# Moved blocks: the same files, all at other places.
cp --sparse=always "$WORK/one" "$WORK/target"
same_as_plain "moved blocks" lab/moved "$WORK/target" --free zero
check "moved blocks: they are copied" [ "$(fact '.delta.copied_bytes > 60000000')" = true ]
check "moved blocks: at most a tenth is fetched" at_most "$(fact .fetched_bytes)" "$(($(jq .fetched_bytes "$WORK/plain.json") / 10))"
rm -f "$WORK/target"
check "blocks of another disk" platter_json install lab/moved "$WORK/target" --yes --from "$WORK/one"
cp "$LOG" "$WORK/report"
rm -f "$WORK/plain"
platter install lab/moved "$WORK/plain" --yes >/dev/null
check "blocks of another disk: the result of a plain install" cmp "$WORK/target" "$WORK/plain"
check "blocks of another disk: at most a tenth is fetched" at_most "$(fact .fetched_bytes)" "$(($(jq .fetched_bytes "$WORK/plain.json") / 10))"

# What an install that was killed half way leaves: empty edges, and the second half is not written.
random 167772160 other >"$WORK/target"
platter install lab/disk "$WORK/target" --yes --no-delta --force not-a-disk >/dev/null
random 83886080 half | dd of="$WORK/target" bs=1M seek=80 conv=notrunc status=none
for at in 0 159; do dd if=/dev/zero of="$WORK/target" bs=1M seek=$at count=1 conv=notrunc status=none; done
same_as_plain "after half of an install" lab/disk "$WORK/target"
# The files are incompressible, so as much of the frames is fetched as of the data is missing.
missing=$(($(jq .written_bytes "$WORK/plain.json") - $(fact .delta.kept_bytes)))
check "after half of an install: much is kept" [ "$(fact '.delta.kept_bytes > 30000000')" = true ]
# Frames are fetched completely, and how blocks share them depends on the threads of the capture.
check "after half of an install: only the rest is fetched" at_most "$(fact .fetched_bytes)" "$((missing * 105 / 100 + 1000000))"

# Killed at random moments, then again.
is_headless() { cmp -n 4096 "$1" /dev/zero; }
is_begun() { is_headless "$WORK/target" || ! kill -0 "$installer"; }
for n in $(seq 12); do
	cp --sparse=always "$WORK/one" "$WORK/target"
	cp --sparse=always "$WORK/one" "$WORK/plain"
	wanted=lab/disk
	[ $((n % 2)) = 0 ] || wanted=lab/moved
	platter install "$wanted" "$WORK/plain" --yes --no-delta --free zero >/dev/null
	"$PLATTER" --store "$STORE" --quiet install "$wanted" "$WORK/target" --yes --delta --free zero >/dev/null 2>&1 &
	installer=$!
	[ $((n % 3)) = 0 ] || until_true 60 is_begun || not_ok "killed $n: it does not begin to write"
	sleep "0.$(printf %03d "$(number "kill $n" 200)")"
	kill -KILL "$installer" 2>/dev/null || true
	wait "$installer" 2>/dev/null || true
	if cmp -s "$WORK/target" "$WORK/plain" || cmp -s "$WORK/target" "$WORK/one" || is_headless "$WORK/target" >/dev/null; then
		ok "killed $n: the target is unchanged, complete, or looks empty"
	else
		not_ok "killed $n: the target looks complete, but is not"
	fi
	check "killed $n: repeating it succeeds" platter install "$wanted" "$WORK/target" --yes --delta --free zero --force not-a-disk
	check "killed $n: the result of a plain install" cmp "$WORK/target" "$WORK/plain"
done

# An origin.
start_origin
cp --sparse=always "$WORK/one" "$WORK/target"
cp --sparse=always "$WORK/one" "$WORK/plain"
platter install lab/disk "$WORK/plain" --yes --no-delta >/dev/null
check "from an origin" afar --json install lab/disk "$WORK/target" --yes --delta
cp "$LOG" "$WORK/report"
check "from an origin: the result of a plain install" cmp "$WORK/target" "$WORK/plain"
check "from an origin: at most 1.1 of the frames that differ are fetched" at_most "$(fact .fetched_bytes)" "$((new_bytes * 11 / 10))"
stop_origin TERM

# Casts to receivers on this machine.
PORT=$((20000 + SRANDOM % 12000))
CAST=lab/disk
BOUND=(timeout 240)
# receive_to FILE REPORT OPTION...: in the background; sets RECEIVER
receive_to() {
	"${BOUND[@]}" "$PLATTER" --quiet --json receive "$CAST" "$1" --trust-any --interface lo --port "$PORT" --hello "${1##*/}" --yes --force not-a-disk \
		--give-up 120 "${@:3}" >"$2" 2>"$2.log" &
	RECEIVER=$!
}
# cast_fact NAME: a number from the report of the last cast
cast_fact() { jq -es "[.. | objects | select(.symbols_sent? != null)] | last | .$1" "$WORK/cast.json"; }
# cast_to N: its report is in cast.json
cast_to() {
	timeout 240 "$PLATTER" --store "$STORE" --quiet --json cast "$CAST" --interface lo --port "$PORT" --receivers "$1" \
		--wait 120 --give-up 120 --linger 0 >"$WORK/cast.json" 2>"$LOG"
}
for option in --verify --free=zero; do
	cp --sparse=always "$WORK/one" "$WORK/target"
	cp --sparse=always "$WORK/one" "$WORK/plain"
	platter install lab/disk "$WORK/plain" --yes --no-delta "${option/--verify/--free=skip}" >/dev/null
	receive_to "$WORK/target" "$WORK/report" "$option"
	check "receive $option onto the previous version: the cast succeeds" cast_to 1
	check "receive $option onto the previous version: it succeeds" wait "$RECEIVER"
	check "receive $option onto the previous version: the result of a plain install" cmp "$WORK/target" "$WORK/plain"
	check "receive $option onto the previous version: only what differs is requested" at_most "$(fact .fetched_bytes)" "$((new_bytes + 3000000))"
	check "receive $option onto the previous version: only that is sent" \
		at_most "$(($(cast_fact symbols_sent) * 1408))" "$((new_bytes * 12 / 10 + 3000000))"
done
check "receive: most was kept" [ "$(fact '.delta.kept_bytes > 80000000')" = true ]

# Four receivers, of which one has the previous version: it gets the same disk, and requests only what differs.
rm -f "$WORK/plain"
platter install lab/disk "$WORK/plain" --yes --free zero >/dev/null
receivers=()
cp --sparse=always "$WORK/one" "$WORK/target-1"
for n in 1 2 3 4; do
	receive_to "$WORK/target-$n" "$WORK/report-$n" --free zero
	receivers+=("$RECEIVER")
done
check "four receivers: the cast succeeds" cast_to 4
for n in 1 2 3 4; do
	check "four receivers: receiver $n succeeds" wait "${receivers[n - 1]}"
	check "four receivers: receiver $n has the disk" cmp "$WORK/target-$n" "$WORK/plain"
done
check "four receivers: the one with the previous version requests only what differs" \
	at_most "$(jq .fetched_bytes "$WORK/report-1")" "$((new_bytes + 3000000))"
check "four receivers: the others request everything" [ "$(jq ".fetched_bytes > $new_bytes * 4 and .delta == null" "$WORK/report-4")" = true ]
rm -f "$WORK"/target-[1-4]

# A receiver that is killed half way, then again: it requests the rest.
rm -f "$WORK/target" "$WORK/plain"
platter_json install lab/disk "$WORK/plain" --yes >"$WORK/plain.json"
BOUND=()
receive_to "$WORK/target" "$WORK/report"
BOUND=(timeout 240)
timeout 240 "$PLATTER" --store "$STORE" --quiet cast "$CAST" --interface lo --port "$PORT" --receivers 1 --wait 120 --give-up 120 \
	--rate 40M --linger 0 >/dev/null 2>&1 &
sender=$!
half=$(($(jq .written_bytes "$WORK/plain.json") / 2048))
# Half of it is there, or the receiver has ended.
is_half() { [ "$(du -k "$WORK/target" | cut -f1)" -gt "$half" ] || ! kill -0 "$RECEIVER"; }
until_true 120 is_half || not_ok "a killed receiver: it does not get half of the disk"
kill -KILL "$RECEIVER" 2>/dev/null || true
wait "$RECEIVER" 2>/dev/null || true
kill "$sender" 2>/dev/null || true
wait "$sender" 2>/dev/null || true
receive_to "$WORK/target" "$WORK/report" --delta
check "a killed receiver, again: the cast succeeds" cast_to 1
check "a killed receiver, again: it succeeds" wait "$RECEIVER"
check "a killed receiver, again: the disk is right" cmp "$WORK/target" "$WORK/plain"
missing=$(($(jq .written_bytes "$WORK/plain.json") - $(fact .delta.kept_bytes)))
check "a killed receiver, again: much is kept" [ "$(fact '.delta.kept_bytes > 30000000')" = true ]
check "a killed receiver, again: only the rest is requested" at_most "$(fact .fetched_bytes)" "$((missing * 105 / 100 + 4000000))"
cast_bytes=$(cast_fact cast_bytes)
check "a killed receiver, again: $(fact .fetched_bytes) of $cast_bytes bytes are fetched" at_most "$(fact .fetched_bytes)" "$((cast_bytes * 55 / 100))"
check "a killed receiver, again: not less than it lacked" at_most "$((cast_bytes * 45 / 100))" "$(fact .fetched_bytes)"

# Block devices with both sector sizes.
if need_root "loop devices"; then
	truncate -s 100M "$WORK/short"
	random 1048576 short | dd of="$WORK/short" conv=notrunc status=none
	cp "$WORK/short" "$WORK/before"
	attach "$WORK/short"
	check_exit "$EXIT_REFUSED" "a device that is too small is refused" platter install lab/disk "$DEVICE" --yes --delta
	detach_loop "$DEVICE"
	check "a device that is too small is unchanged" cmp "$WORK/short" "$WORK/before"
	for sector in 512 4096; do
		make_disk "$WORK/one" "$tree" "$sector" -N 4000
		change_disk "$WORK/one" "$WORK/two"
		platter capture "$WORK/one" "lab/sectors$sector" --sector-size "$sector" >/dev/null
		platter capture "$WORK/two" "lab/sectors$sector" --sector-size "$sector" >/dev/null
		cp --sparse=always "$WORK/one" "$WORK/target"
		cp --sparse=always "$WORK/one" "$WORK/plain"
		cp --sparse=always "$WORK/one" "$WORK/received"
		for target in target plain received; do
			attach "$WORK/$target" --sector-size "$sector"
			case $target in
			target) check "a loop device with sectors of $sector bytes, --delta" platter_json install "lab/sectors$sector" "$DEVICE" --yes --delta ;;
			plain) check "a loop device with sectors of $sector bytes, --no-delta" platter_json install "lab/sectors$sector" "$DEVICE" --yes --no-delta ;;
			received)
				CAST=lab/sectors$sector
				receive_to "$DEVICE" "$WORK/report-received" --verify
				check "a cast to a loop device with sectors of $sector bytes" cast_to 1
				check "a cast to a loop device with sectors of $sector bytes: the receiver succeeds" wait "$RECEIVER"
				;;
			esac
			[ "$target" != target ] || cp "$LOG" "$WORK/report"
			detach_loop "$DEVICE"
		done
		check "a loop device with sectors of $sector bytes: the same result" cmp "$WORK/target" "$WORK/plain"
		check "a loop device with sectors of $sector bytes: the same result of a cast" cmp "$WORK/received" "$WORK/plain"
		check "a loop device with sectors of $sector bytes: most is kept" [ "$(fact '.delta.kept_bytes > 80000000')" = true ]
		check "a loop device with sectors of $sector bytes: most is kept by a receiver" \
			[ "$(jq '.delta.kept_bytes > 80000000' "$WORK/report-received")" = true ]
	done
fi

finish
