#!/usr/bin/env bash
# tests/leases.sh: what an origin keeps for readers on other machines. Versions are forgotten and collected without a trash while a
# node and clients without a cache read them: everything stays readable, can be written and published. After the leases
# have ended, it is freed. A token that may not read a disk keeps nothing, and a removed one neither.
. "$(dirname "$0")/lib.sh"

CACHE=$WORK/cache
SERVED=()
suite_cleanup() {
	local process
	for process in $ORIGIN "${SERVED[@]}" $(jobs -p); do kill -KILL "$process" 2>/dev/null; done
}

# serve COMMAND ARGUMENT...: attaches a disk at $WORK/nbd.sock in the background with `afar` or `afar_tls`; its process is $SERVER
serve() {
	rm -f "$WORK/nbd.sock"
	"$@" --nbd "$WORK/nbd.sock" >"$WORK/attach.log" 2>&1 &
	SERVER=$!
	SERVED+=("$SERVER")
	until_true 30 test -S "$WORK/nbd.sock" || { cat "$WORK/attach.log"; return 1; }
}
# The functions run `platter` as a child in the background, which outlives them.
end_served() {
	pkill -TERM -P "$SERVER" 2>/dev/null || kill -TERM "$SERVER" 2>/dev/null || true
	wait "$SERVER" 2>/dev/null || true
}
uri() { echo "nbd+unix:///$1?socket=$WORK/nbd.sock"; }
both() { qemu-io -f raw -c "$1" "$(uri "$2")" && qemu-io -f raw -c "$1" "$WORK/copy"; }
# same URI FILE: the whole disk, read over NBD, equals the file
same() { rm -f "$WORK/copied" && nbdcopy "$1" "$WORK/copied" && cmp "$WORK/copied" "$2"; }
is_version() { rm -f "$WORK/exported" && platter export "$1" "$WORK/exported" && cmp "$2" "$WORK/exported"; }
collect() { platter_json gc --keep-trash 0 --compact 100 --yes >"$WORK/report"; }
freed() { collect && jq -e '.deleted.packs > 0' "$WORK/report"; }
kept() { collect && jq -e '.given_up.packs == 0' "$WORK/report"; }
# age DAYS: the leases were used that much earlier, and the origin does not remember them
age() {
	stop_origin TERM
	jq -c "{leases: (.leases | map(.used_unix_ms -= $1 * 86400000))}" "$STORE/leases.json" >"$WORK/leases" && mv "$WORK/leases" "$STORE/leases.json"
	start_origin
}

platter init
random 12582912 stays >"$WORK/stays"
platter capture --raw "$WORK/stays" lab/stays >/dev/null
check "an origin answers" start_origin
FINGERPRINT=$(origin_fingerprint)

# A node.
random 12582912 node >"$WORK/disk"
platter capture --raw "$WORK/disk" lab/node >/dev/null
"$PLATTER" node --no-hoard --origin "unix:$SOCKET" --cache "$CACHE" >"$WORK/node.log" 2>&1 &
NODE=$!
until_true 30 "$PLATTER" disks --node "$CACHE"
check "a node attaches a disk, and reads nothing of it" "$PLATTER" attach lab/node --node "$CACHE"
check "the disk is forgotten" afar forget lab/node --all
check "a collection without a trash" afar gc --keep-trash 0 --compact 100 --yes
check "the node reads the whole disk" same "nbd+unix:///lab/node?socket=$CACHE/nbd.sock" "$WORK/disk"
check "its lease ends a day later" age 6
rm -f "$STORE/leases.json.before"
check "but not while the node reports the disk" until_true 40 sh -c "jq -e '.leases | length > 0 and all(.used_unix_ms > (now - 3600) * 1000)' '$STORE/leases.json'"
"$PLATTER" detach lab/node --node "$CACHE" >/dev/null
kill -TERM "$NODE"
wait "$NODE" 2>/dev/null || true
check "after the end, the lease still counts" kept
age 8
check "and then it ends: the disk is freed" freed

# Writable disks whose edit lock was stolen and released, and whose image was forgotten: with the rights of the unix
# socket, and with a token for some images.
TOKEN=$(origin_secret write 'lab/*')
for way in afar afar_tls; do
	image=lab/$way
	random 12582912 "$way" >"$WORK/disk"
	platter capture --raw "$WORK/disk" "$image" >/dev/null
	cp "$WORK/disk" "$WORK/copy"
	check "$way: a disk is attached for writing" serve "$way" attach --write "$image" --holder first
	check "$way: and written" both 'write -P 0x11 1m 100k' "$image"
	lock=$("$way" --json disks | jq -r "select(.disk == \"$image\") | .edit_lock")
	afar lock steal "$image" --holder second >/dev/null
	afar lock release "$image" --holder second >/dev/null
	check "$way: its image is forgotten" afar forget "$image" --all
	check "$way: a collection without a trash" afar gc --keep-trash 0 --compact 100 --yes
	check "$way: the whole disk can be read" same "$(uri "$image")" "$WORK/copy"
	check "$way: and written" both 'write -P 0x22 5000 70000' "$image"
	# A token for some images cannot name a base without a version yet.
	if [ "$way" = afar ]; then
		check "$way: it is published as a new image" "$way" publish "$image" "$image-found" --lock "$lock"
		check "$way: which equals the disk" is_version "$image-found" "$WORK/copy"
		afar forget "$image-found" --all >/dev/null
	fi
	end_served
	age 8
	check "$way: after the lease's end, it is freed" freed
done

# Exports take time, too.
random 12582912 export >"$WORK/disk"
platter capture --raw "$WORK/disk" lab/export >/dev/null
check "a client without a cache attaches a disk" serve afar_tls attach lab/export
platter forget lab/export --all >/dev/null
check "a collection in the origin's directory knows the leases, too" collect
check "the disk is read" same "$(uri lab/export)" "$WORK/disk"
end_served
OTHER=$TOKEN
TOKEN=$(origin_secret read 'other/*')
# The file has leases that ended lately, too.
jq '.leases | map(select(.used_unix_ms > (now - 3600) * 1000))' "$STORE/leases.json" >"$WORK/live"
score=$(jq -r '.[].score' "$WORK/live")
check_exit "$EXIT_MISSING" "a token that may not read the disk still may not" afar_tls export "$score" "$WORK/none"
jq '.leases | map(select(.used_unix_ms > (now - 3600) * 1000))' "$STORE/leases.json" >"$WORK/live"
check "and has no lease" [ "$(jq length "$WORK/live")" = 1 ]
TOKEN=$OTHER
id=$(platter_json serve token list | jq -r 'select(.images == ["lab/*"] or .patterns == ["lab/*"]) | .id' | head -n 1)
platter serve token remove "$id" >/dev/null
check "a removed token has none: the disk is freed" freed

# Leases that cannot be written.
random 12582912 unwritten >"$WORK/disk"
platter capture --raw "$WORK/disk" lab/unwritten >/dev/null
rm "$STORE/leases.json"
mkdir "$STORE/leases.json.new"
check "a disk is attached although its lease cannot be written" serve afar attach lab/unwritten
qemu-io -r -f raw -c 'read 0 64k' "$(uri lab/unwritten)" >/dev/null
check "there is none in the file" [ ! -e "$STORE/leases.json" ]
platter forget lab/unwritten --all >/dev/null
check "the origin's collection knows it all the same" afar gc --keep-trash 0 --compact 100 --yes
check "the disk is read" same "$(uri lab/unwritten)" "$WORK/disk"
rmdir "$STORE/leases.json.new"
end_served

# A damaged list of leases.
random 12582912 damaged >"$WORK/disk"
platter capture --raw "$WORK/disk" lab/damaged >/dev/null
check "a disk is attached" serve afar attach lab/damaged
qemu-io -r -f raw -c 'read 0 64k' "$(uri lab/damaged)" >/dev/null
check "it has a lease" grep -q '"checksum"' "$STORE/leases.json"
platter forget lab/damaged --all >/dev/null
cp "$STORE/leases.json" "$WORK/leases"
sed -i 's/"score":"./"score":"x/' "$STORE/leases.json"
check_exit "$EXIT_CORRUPT" "with a damaged list of leases, nothing is collected" platter gc --keep-trash 0 --yes
check_said "which is said" 'leases.json is damaged'
check_exit "$EXIT_CORRUPT" "a check finds the damage" platter check
check "the disk is read" same "$(uri lab/damaged)" "$WORK/disk"
cp "$WORK/leases" "$STORE/leases.json"
check "with a copy of the list, a collection works" collect
check "and the disk is read" same "$(uri lab/damaged)" "$WORK/disk"
end_served
check "a dry run tells what is kept for readers" platter gc --keep-trash 0 --dry-run
check_said "and how it can be freed" 'in the last 7 days: 1 forgotten disk; --end-leases gives them up now'
check "leases can be ended by a dry run only in its report" platter gc --keep-trash 0 --dry-run --end-leases
check_said "which no longer counts them" 'would give up 12.6 MB'
check "the disk is still kept" kept
check_exit "$EXIT_REFUSED" "so much is not given up unconfirmed" afar gc --keep-trash 0 --end-leases
check "then no lease ends" kept
check "leases that are ended free the disk" afar gc --keep-trash 0 --end-leases --yes
check_said "all of it" 'deleted 12.6 MB in 1 pack'
check "no lease is left" jq -e '.leases | length == 0' "$STORE/leases.json"
stop_origin TERM
check "the store is sound" platter check --read-data
finish
