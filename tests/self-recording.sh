#!/usr/bin/env bash
# tests/self-recording.sh: nodes record boots by themselves. A version that boots on one node is read from the hoard on
# another with the origin down, without manual recording. Later boots refine the set, concurrent boots make one set, and
# a boot while the origin is down is registered once it is back. Copies of a disk are not recorded, nor boots on a node
# whose access token may only read or with recording disabled. A boot is simulated by its reads: the first sector, then
# reads in many places, then a pause.
. "$(dirname "$0")/lib.sh"

readonly MIB=1048576
declare -A NODES=()
suite_cleanup() {
	local process
	for process in $ORIGIN "${NODES[@]}" $(jobs -p); do kill -KILL "$process" 2>/dev/null; done
	umount -l "$WORK/tree" 2>/dev/null
}
is() {
	[ "$1" = "$2" ] || {
		printf 'is    %s\nnot   %s\n' "$1" "$2"
		return 1
	}
}
# node NAME SECRET OPTION...: starts a node in the background, and waits until it answers
node() {
	local name=$1 secret=$2
	shift 2
	PLATTER_TOKEN=$secret "$PLATTER" --server "https://127.0.0.1:$PORT" --fingerprint "$FINGERPRINT" node --cache "$WORK/$name" --name "$name" "$@" \
		>>"$WORK/$name.log" 2>&1 &
	NODES[$name]=$!
	until_true 60 "$PLATTER" disks --node "$WORK/$name" || { cat "$WORK/$name.log"; return 1; }
}
end_node() {
	kill "${NODES[$1]}"
	wait "${NODES[$1]}" || true
	unset "NODES[$1]"
}
at() { "$PLATTER" "$2" "$3" --node "$WORK/$1" "${@:4}" >/dev/null; }
uri() { echo "nbd+unix:///$2?socket=$WORK/$1/nbd.sock"; }
# What a boot reads: 128 KiB in each of 56 places, in units of 64 KiB
PLACES=()
for place in 40 12 60 3 33 21 50; do
	for piece in 0 1 2 3 4 5 6 7; do PLACES+=($((place * 16 + piece * 3))); done
done
readonly PLACES
# boot NODE IMAGE [READ...]: reads what a boot reads of its disk, and more
boot() { boot_of "$(uri "$1" "$2")" "${@:3}"; }
# boot_of URI-OR-FILE [READ...]
boot_of() {
	local commands=(-c 'read 0 4k') place
	for place in "${PLACES[@]}"; do commands+=(-c "read $((place * 64))k 128k"); done
	for place in "${@:2}"; do commands+=(-c "read $place"); done
	qemu-io "${ACCESS[@]}" -f raw "${commands[@]}" "$1" >/dev/null
}
ACCESS=(-r)
# same_places NODE IMAGE FILE: what a boot reads is as in the file
same_places() {
	local place
	for place in "${PLACES[@]}"; do
		rm -f "$WORK/piece"
		qemu-img dd -f raw -O raw bs=64k "skip=$place" "count=$((place + 2))" "if=$(uri "$1" "$2")" "of=$WORK/piece" >/dev/null 2>&1 || true
		cmp <(head -c 131072 "$WORK/piece") <(dd "if=$3" bs=64k "skip=$place" count=2 status=none) || return 1
	done
}
members() { platter_json hoard list | jq -rs 'map("\(.image)@\(.number)") | sort | join(" ")'; }
record_of() { platter_json hoard list | jq -c --arg version "$1" 'select("\(.image)@\(.number)" == $version) | .record'; }
is_recorded() { [ -n "$(record_of "$1")" ]; }
revision() { platter_json hoard status | jq .revision; }
hoards() { [ "$(platter_json hoard status --cache "$WORK/$1" | jq .replica.revision)" = "$2" ]; }
sent() { curl -s --unix-socket "$SOCKET" http://origin/metrics | awk '$1 == "platter_frame_stream_bytes_sent_total" { print $2 }'; }
# settled: the origin has sent nothing for half a second
settled() {
	local before
	before=$(sent)
	sleep 0.5
	[ "$before" = "$(sent)" ]
}
# disk NUMBER: 64 MiB, of which 5 are its own, two of them where a boot reads
disk() { random $((2 * MIB)) "disk $1" | dd of="$WORK/disk" bs=1M seek=12 conv=notrunc status=none && random $((3 * MIB)) "more of $1" | dd of="$WORK/disk" bs=1M seek=40 conv=notrunc status=none; }
# publish NUMBER IMAGE
publish() { disk "$1" && afar capture --raw "$WORK/disk" "$2" >/dev/null; }

random $((64 * MIB)) disk >"$WORK/disk"
platter init >/dev/null
check "an origin answers" start_origin
FINGERPRINT=$(origin_fingerprint)
WRITER=$(origin_secret write)
READER=$(origin_secret read)
publish 1 lab/disk
cp "$WORK/disk" "$WORK/disk-1"
check "a node whose token may write starts" node writer "$WRITER"
check "a node whose token may only read starts" node reader "$READER"
check "a node with --no-record-boots starts" node silent "$WRITER" --no-record-boots

# One boot on one node.
at writer attach lab/disk
check "a version boots on a node" boot writer lab/disk
began=$(date +%s%N)
check "and its boot is recorded" until_true 30 is_recorded lab/disk@1
check "the other node has hoarded it" until_true 30 hoards reader "$(revision)"
echo "# from the end of the boot until the other node had it: $((($(date +%s%N) - began) / 1000000)) ms"
check "by one boot of that node" is "$(record_of lab/disk@1 | jq -c '[.boots, (.nodes | length), .marker]')" '[1,1,"quiet:4"]'
check "of what was read and no more" jq -e '.bytes >= 7 * 1048576 and .bytes < 8 * 1048576 and .requests == 57' <(record_of lab/disk@1)
check "status says on how many nodes" jq -e '.boot_sets[0].boots == 1 and (.boot_sets[0].nodes | length) == 1' <(platter_json hoard status)
stop_origin KILL
check "with the origin down, the version is attached on the other node" at reader attach lab/disk@1
check "a boot reads the right bytes" same_places reader lab/disk "$WORK/disk-1"
check "without fetching anything" jq -es 'map(select(.disk == "lab/disk")) | .[0].node.fetched_bytes == 0' <("$PLATTER" --json disks --node "$WORK/reader")
check "the origin answers again" start_origin
at reader detach lab/disk

# The next version: its new blocks are transferred once.
publish 2 lab/disk
at writer detach lab/disk
at writer attach lab/disk
check "the next version boots" boot writer lab/disk
# What the boot read ahead may still be on its way; its boot set is made seconds later.
check "and its blocks have arrived" until_true 30 settled
before=$(sent)
check "and its boot is recorded" until_true 30 is_recorded lab/disk@2
check "the other node has hoarded it as well" until_true 30 hoards reader "$(revision)"
check "and so has the node with --no-record-boots" until_true 30 hoards silent "$(revision)"
travelled=$(($(sent) - before))
list=$(afar --json hoard show lab/disk@2 | jq -r .boot_set)
travelled=$((travelled + 2 * $(curl -s --unix-socket "$SOCKET" "http://origin/api/v1/hoard/boot-sets/$list" | wc -c)))
new=$(awk -v bytes=$travelled -v copy=$((2 * MIB)) 'BEGIN { printf "%.3f", bytes / copy }')
check "both nodes together fetched $new copies of its new blocks and the list" awk -v new="$new" 'BEGIN { exit !(new >= 1.99 && new <= 2 * 1.05) }'

# Later boots.
bytes=$(record_of lab/disk@2 | jq .bytes)
check "it boots again, and reads more" boot writer lab/disk '45M 512k'
has_grown() { [ "$(record_of lab/disk@2 | jq .bytes)" -gt "$bytes" ]; }
check "the additional blocks join the set" until_true 30 has_grown
check "at its end" jq -e '.bytes >= 15 * 524288 and .bytes < 16 * 524288' <(record_of lab/disk@2)
afar hoard unregister lab/disk@2 >/dev/null

# What is not recorded. Each comes before a boot that is: what ended first is registered first.
# small N: attaches a new disk of 2 MiB
small() { random $((2 * MIB)) "small $1" >"$WORK/small" && afar capture --raw "$WORK/small" "lab/small-$1" >/dev/null && at writer attach "lab/small-$1"; }
small_copies() {
	local n
	for n in 1 2 3 4 5 6; do
		small "$n" || return 1
		nbdcopy --connections=8 --requests=64 --request-size=65536 "$(uri writer "lab/small-$n")" "$WORK/small-copy" || return 1
		cmp "$WORK/small" "$WORK/small-copy" || return 1
	done
}
check "disks of 2 MiB are copied by many requests at once" small_copies
for image in copied read-only silent marker cut file written; do
	random $MIB "$image" | dd of="$WORK/disk" bs=1M seek=62 conv=notrunc status=none
	afar capture --raw "$WORK/disk" "lab/$image" >/dev/null
done
for image in copied marker cut; do at writer attach "lab/$image"; done
at reader attach lab/read-only
at silent attach lab/silent
check "a disk is copied" cmp <(nbdcopy "$(uri writer lab/copied)" - | cat) <(dd if="$WORK/disk" bs=1M count=62 status=none && random $MIB copied && dd if="$WORK/disk" bs=1M skip=63 status=none)
check "one is copied in part" sh -c "nbdcopy --connections=4 --requests=64 '$(uri writer lab/cut)' - | head -c 20000000 | wc -c | grep -qx 20000000"
check "one boots where the token may only read" boot reader lab/read-only
check "one boots where nothing is to be recorded" boot silent lab/silent
check "and one boots on a node that records" boot writer lab/marker
check "which is recorded" until_true 30 is_recorded lab/marker@1
check "the others are not recorded" is "$(members)" 'lab/disk@1 lab/marker@1'
end_node silent

# A boot that writes its disk: what it wrote and reads again is not the version's.
at writer attach lab/written --write
written() {
	local ACCESS=(-c "write -P 1 $((PLACES[0] * 64))k 128k")
	boot writer lab/written "$((PLACES[0] * 64))k 128k"
}
check "a disk that is written boots" written
check "and is recorded" until_true 30 is_recorded lab/written@1
check "without what was written" jq -e '.bytes >= 55 * 131072 and .bytes < 56 * 131072' <(record_of lab/written@1)
at writer detach lab/written --then discard
if need_root "mounting the tree"; then
	end_node writer
	mkdir "$WORK/tree"
	check "a node with a tree" node writer "$WRITER" --fuse "$WORK/tree"
	tree_boot() {
		local ACCESS=(-r -t none)
		boot_of "$WORK/tree/lab/file/1.raw"
	}
	check "a version boots from its file in the tree" tree_boot
	check "and is recorded" until_true 30 is_recorded lab/file@1
	check "as from a disk" jq -e '.bytes >= 7 * 1048576 and .bytes < 8 * 1048576' <(record_of lab/file@1)
fi

# Several at once.
check "another node whose token may write" node other "$WRITER"
for image in many last; do
	random $MIB "$image" | dd of="$WORK/disk" bs=1M seek=62 conv=notrunc status=none
	afar capture --raw "$WORK/disk" "lab/$image" >/dev/null
	for name in writer other; do at "$name" attach "lab/$image"; done
done
before=$(revision)
boot other lab/many &
second=$!
check "a version boots on two nodes at once" boot writer lab/many
wait "$second"
check "it is recorded" until_true 30 is_recorded lab/many@1
check "another version boots on one node" boot other lab/last
check "it is recorded as well" until_true 30 is_recorded lab/last@1
check "each made one revision" is "$(revision)" "$((before + 2))"
check "with one boot counted" is "$(record_of lab/many@1 | jq .boots)" 1

# The origin is down.
random $MIB away | dd of="$WORK/disk" bs=1M seek=62 conv=notrunc status=none
afar capture --raw "$WORK/disk" lab/away >/dev/null
at writer attach lab/away --fill
is_filled() { "$PLATTER" --json disks --node "$WORK/writer" | jq -es --arg disk "$1" 'any(.[]; .disk == $disk and .fill.filled)'; }
check "a disk is filled" until_true 60 is_filled lab/away
stop_origin KILL
check "with the origin down, it boots" boot writer lab/away
check "the recorded boot is kept" until_true 60 grep -q 'is kept until the origin answers' "$WORK/writer.log"
check "the origin is back" start_origin
check "the boot is recorded" until_true 60 is_recorded lab/away@1
finish
