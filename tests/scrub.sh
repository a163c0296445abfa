#!/usr/bin/env bash
# tests/scrub.sh: damage is found, kept apart and healed. A server that scrubs finds flipped bytes in packs of a running store,
# and the quarantine survives its death by SIGKILL. `heal` repairs from another store, an origin, the cache or the hoard of a node, and
# the captured disk, never from a holder that has other bytes, and names what stays lost. Protected versions are not forgotten.
. "$(dirname "$0")/lib.sh"

SCRUBBER=
SERVER=
NODE=
suite_cleanup() {
	local pid
	for pid in $SCRUBBER $SERVER $NODE $ORIGIN; do kill -9 "$pid" 2>/dev/null; done
}

facts() { curl -s -m 20 --unix-socket "$WORK/scrub.sock" http://origin/api/v1/store; }
metric() { curl -s -m 20 --unix-socket "$WORK/scrub.sock" http://origin/metrics | sed -n "s/^$1 //p"; }
start_scrubber() { # ARGUMENT...
	"$PLATTER" --store "$STORE" serve --listen "unix:$WORK/scrub.sock" "$@" >>"$WORK/scrub.log" 2>&1 &
	SCRUBBER=$!
	until_true 30 facts
}
stop_scrubber() {
	kill "-$1" "$SCRUBBER"
	wait "$SCRUBBER" 2>/dev/null || true
	SCRUBBER=
}
flip() { # FILE BYTE
	perl -e '
		my ($file, $at) = @ARGV;
		open my $h, "+<:raw", $file or die; seek $h, $at, 0; read $h, my $byte, 1;
		seek $h, $at, 0; print $h chr(ord($byte) ^ 4) or die; close $h or die' "$1" "$2"
}
never_read() { (platter_json check || true) | jq .never_read_back_packs; }
equal() { # VERSION
	rm -f "$WORK/read"
	platter export "$1" "$WORK/read" >/dev/null && cmp "$WORK/read" "$WORK/right-${1##*@}"
}

# Three versions in a pack each.
file_tree "$WORK/tree" 8 scrub
ext4_image "$WORK/disk-1" 32 "$WORK/tree"
platter init >/dev/null
platter capture "$WORK/disk-1" lab/image >/dev/null
for n in 2 3; do
	cp --sparse=always "$WORK/disk-$((n - 1))" "$WORK/disk-$n"
	random 1500000 "new in $n" >"$WORK/new"
	debugfs -w -R "write $WORK/new new-$n" "$WORK/disk-$n" >/dev/null 2>&1
	platter capture "$WORK/disk-$n" lab/image >/dev/null
done
for n in 1 2 3; do platter export "lab/image@$n" "$WORK/right-$n" >/dev/null; done
cp -a "$STORE" "$WORK/sound"
# A byte of a data frame in each of the two largest packs.
mapfile -t packs < <(find "$STORE/packs" -name '*.pack' -printf '%s %P\n' | sort -rn | cut -d ' ' -f 2- | head -n 2)
damage() {
	local pack
	for pack in "${packs[@]}"; do
		flip "$STORE/packs/$pack" $(($(stat -c %s "$STORE/packs/$pack") / 3 + $(number "flip $1 $pack" 1000)))
	done
}

# Reading everything on all cores finds the same as a scrub. An interrupted check continues.
check "a sound store is clean" platter check --read-data
check "and everything was read back" test "$(never_read)" = 0
check "packs that were read recently can be skipped" platter check --read-data --unless-read-within 1h

# A running server finds the damage. It is killed at once.
rm -rf "$STORE"
cp -a "$WORK/sound" "$STORE"
start_scrubber --scrub 5s
check "a scrub reads every pack within its period" until_true 30 sh -c "curl -s --unix-socket '$WORK/scrub.sock' http://origin/api/v1/store | jq -e '.health.all_read_since_unix_ms != null'"
check "and finds a sound store sound" test "$(metric platter_quarantined_frames)" = 0
damage scrub
check "a scrub finds flipped bytes in both packs" until_true 30 sh -c "curl -s --unix-socket '$WORK/scrub.sock' http://origin/metrics | grep -qx 'platter_scrub_bad_frames_total 2'"
check "which are in quarantine" test "$(metric platter_quarantined_frames)" = 2
check "as the API says, too" test "$(facts | jq '.health.quarantined_blocks > 0')" = true
check "and a note says what to do" grep -q 'platter heal' "$WORK/scrub.log"
stop_scrubber KILL
check_exit "$EXIT_CORRUPT" "the quarantine survives SIGKILL: a check knows without reading" platter check
check_said "it names the versions" 'damaged: .*lab/image@1'

# Healing. Each holder gets a fresh copy of the damaged store.
cp -a "$STORE" "$WORK/damaged"
again() {
	rm -rf "$STORE"
	cp -a "$WORK/damaged" "$STORE"
}
healed() { # NAME WHERE...
	local name=$1 n
	shift
	check "$name: everything is healed" platter heal "${@/#/--from=}"
	check_said "$name: versions are whole again" 'whole again: .*lab/image@1'
	case $name in *" of a node") check_said "$name: it is named" "healed .* from ${name% of a node} in $1" ;; esac
	[ "$name" != "a store that lost a pack" ] || check "$name: the catalog forgets the pack" platter rebuild
	check "$name: nothing is damaged any more" platter check --read-data
	for n in 1 2 3; do check "$name: version $n reads back" equal "lab/image@$n"; done
}
check_exit "$EXIT_CORRUPT" "without a holder, nothing is healed" platter heal
check_said "what is lost is named, with its versions" 'LOST +data [0-9a-f]{64}; damages lab/image@1'
check_said "and that nobody was asked" 'lost: no holder was asked'
check_exit "$EXIT_REFUSED" "a directory without blocks is refused" platter heal --from "$WORK/tree"
random 33554432 "no disk of a version" >"$WORK/noise"
check_exit "$EXIT_CORRUPT" "a disk with other contents heals nothing" platter heal --from "$WORK/noise"
check_said "and is named" "lost: asked were $WORK/noise;"
healed "another store" "$WORK/sound"
again
check "a disk is attached for writing" start_server lab/image --write --nbd "$WORK/live.sock"
check "and written" qemu-io -f raw -c 'write -P 7 1m 64k' "nbd+unix:///lab/image?socket=$WORK/live.sock"
stop TERM
platter lock steal lab/image >/dev/null
platter lock release lab/image >/dev/null
for n in 1 2 3; do platter forget "lab/image@$n" >/dev/null; done
check_exit "$EXIT_CORRUPT" "what the disk stands on is damaged, although it has no name any more" platter check --read-data
check "it is healed" platter heal --from "$WORK/sound"
check "and nothing is damaged any more" platter check --read-data
again
healed "the captured disk" "$WORK/disk-3"
again
mv "$STORE" "$WORK/aside"
cp -a "$WORK/sound" "$STORE"
start_origin
check "an install through a cache" "$PLATTER" --server "unix:$SOCKET" --quiet install lab/image@3 "$WORK/target" --cache-dir "$WORK/cache"
for n in 1 2 3; do
	check "the boot of version $n is recorded" start_server "lab/image@$n" --nbd "$WORK/boot.sock" --record "$WORK/trace-$n"
	check "which reads everything" qemu-io -r -f raw -c 'read 0 32M' "nbd+unix:///lab/image?socket=$WORK/boot.sock"
	stop TERM
	check "it becomes a boot set" afar hoard import "$WORK/trace-$n" "lab/image@$n"
done
check "a node gets the hoard" afar hoard sync --cache "$WORK/hoarding"
"$PLATTER" node --origin "unix:$SOCKET" --cache "$WORK/node" --no-hoard >"$WORK/node.log" 2>&1 &
NODE=$!
check "another node without the hoard starts" until_true 30 "$PLATTER" disks --node "$WORK/node"
for n in 1 2 3; do
	check "it attaches version $n" "$PLATTER" attach "lab/image@$n" --node "$WORK/node"
	check "and reads it" qemu-img compare -f raw -F raw "$WORK/right-$n" "nbd+unix:///lab/image?socket=$WORK/node/nbd.sock"
	check "and detaches it" "$PLATTER" detach lab/image --node "$WORK/node"
done
SOUND=$STORE
STORE=$WORK/aside
check_exit "$EXIT_REFUSED" "the cache of a running node is not used" platter heal --from "$WORK/node"
kill "$NODE"
wait "$NODE" 2>/dev/null || true
NODE=
healed "an origin" "unix:$SOCKET"
rm -rf "$STORE"
cp -a "$WORK/sound" "$STORE"
find "$STORE/packs" -name '*.pack' -delete
check "a store without packs is healed from an origin, pages too" platter heal --from "unix:$SOCKET"
check_said "and is whole again" 'whole again: .*lab/image@1'
for n in 1 2 3; do check "version $n reads back" equal "lab/image@$n"; done
rm -rf "$STORE"
cp -a "$WORK/damaged" "$STORE"
healed "the cache of an install" "$WORK/cache"
for from in "cache $WORK/node" "hoard $WORK/hoarding"; do
	rm -rf "$STORE"
	cp -a "$WORK/damaged" "$STORE"
	healed "the ${from% *} of a node" "${from#* }"
done
STORE=$SOUND

# A pack that is gone altogether.
rm "$STORE/packs/${packs[0]}"
check_exit "$EXIT_CORRUPT" "a missing pack is damage" platter check
check_said "and the check says why costs are not counted" 'forgetting an image would free was not counted: .*lab/image'
healed "a store that lost a pack" "$WORK/noise" "$WORK/damaged" "$WORK/disk-3" "$WORK/sound"
rm -rf "$STORE"
cp -a "$WORK/sound" "$STORE"
stop_origin KILL

# A check that was interrupted continues where it was, and so does a scrub of another server.
start_scrubber --scrub 1h
check "a slow scrub reads the first pack at once" until_true 30 sh -c "curl -s --unix-socket '$WORK/scrub.sock' http://origin/metrics | grep -qx 'platter_scrubbed_packs_total 1'"
stop_scrubber KILL
check "its position is durable" test "$(never_read)" = 2
start_scrubber --scrub 1h
check "another one reads another pack" until_true 30 sh -c "curl -s --unix-socket '$WORK/scrub.sock' http://origin/api/v1/store | jq -e '.health.never_read_back.packs == 1'"
stop_scrubber TERM

# Protection.
start_origin
check "a version is protected" platter protect lab/image@1
check "and another through the origin" afar protect lab/image@2
check_exit "$EXIT_REFUSED" "a protected version is not forgotten" platter forget lab/image@1
check_said "the message says how" 'platter unprotect'
check_exit "$EXIT_REFUSED" "neither through the origin" afar forget lab/image --all
check "a policy keeps protected versions" afar forget lab/image --keep-last 1
check_said "and says so" 'lab/image@1 +protected'
check "both are there" platter show lab/image@2
check_said "a version says that it is protected" 'protected'
check "so does the history" test "$(platter_json history lab/image | jq -c -s 'map(select(.protected) | .number)')" = '[2,1]'
check "and the list of images" test "$(platter_json images | jq .protected)" = false
check "a collection keeps them" platter gc --keep-trash 0 --yes
for n in 1 2 3; do check "version $n reads back" equal "lab/image@$n"; done
check "the protection ends" afar unprotect lab/image
check "then they are forgotten" afar forget lab/image --keep-last 1
check_exit "$EXIT_MISSING" "and gone" platter show lab/image@1
check "the log of changes says who did it" afar log lab/image
check_said "who protected" 'protect'
stop_origin KILL
# Small files and 1 KiB blocks: many blocks are made of pieces in different places, or end in zero sectors.
STORE=$WORK/small
platter init >/dev/null
mkdir -p "$WORK/small-tree"
for n in $(seq 300); do
	mkdir "$WORK/small-tree/$n"
	random $((n * 37)) "small $n" >"$WORK/small-tree/$n/file"
done
mke2fs -q -F -t ext4 -b 1024 -d "$WORK/small-tree" "$WORK/small-disk" 64M
platter capture "$WORK/small-disk" small/disk >/dev/null
# damage_all: a byte in every 20 kB of all packs, but not in their footers
damage_all() {
	python3 - "$STORE/packs" <<-'END'
		import pathlib, sys
		for pack in pathlib.Path(sys.argv[1]).rglob('*.pack'):
		    pack.chmod(0o600)
		    with pack.open('r+b') as file:
		        contents = bytearray(file.read())
		        for at in range(200, len(contents) * 9 // 10, 20000):
		            contents[at] ^= 0x40
		        file.seek(0)
		        file.write(contents)
	END
}
damage_all
check_exit "$EXIT_CORRUPT" "most of a small store is damaged" platter check --read-data
check "all of it heals from its disk" platter heal --from "$WORK/small-disk"
check "and is read back" platter export small/disk "$WORK/small-again"
check "as it was" cmp "$WORK/small-disk" "$WORK/small-again"
finish
