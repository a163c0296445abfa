#!/usr/bin/env bash
# tests/copies.sh: copies of versions and of whole stores. Push and pull between directories and origins, over a unix socket and
# over TLS, killed and continued; damage at either end. PLATTER_SEED selects the moments.
. "$(dirname "$0")/lib.sh"

case ${PLATTER_SIZE:-quick} in full) transfers=8 ;; *) transfers=2 ;; esac
suite_cleanup() {
	local process
	for process in $ORIGIN; do kill -KILL "$process" 2>/dev/null; done
	wait 2>/dev/null
}

# at DIR ARGUMENT...: runs `platter` on the store in WORK/DIR
at() {
	local dir=$1
	shift
	"$PLATTER" --store "$WORK/$dir" --quiet "$@"
}
at_json() {
	local dir=$1
	shift
	"$PLATTER" --store "$WORK/$dir" --quiet --json "$@"
}
new_store() { at "$1" init >/dev/null; }
records() { at_json "$1" history "$2" | jq -cS .; }
same_records() { [ -n "$(records "$1" "$3")" ] && [ "$(records "$1" "$3")" = "$(records "$2" "$3")" ]; }
# is_version DIR NAME FILE: that version of the store in WORK/DIR has the bytes of FILE
is_version() {
	rm -f "$WORK/exported"
	at "$1" export "$2" "$WORK/exported" && cmp "$3" "$WORK/exported"
}
# sent: blocks that the last transfer reported
sent() { jq -s 'map(.blocks) | add' "$LOG"; }
# damage_block DIR NAME: flips a byte in the largest pack of the store
flip_in_largest_pack() {
	local pack length
	pack=$(find "$WORK/$1/packs" -name '*.pack' -printf '%s %p\n' | sort -rn | head -n 1 | cut -d' ' -f2)
	length=$(stat -c %s "$pack")
	python3 - "$pack" $((length / 2)) <<'PYTHON'
import sys
with open(sys.argv[1], "r+b") as file:
    file.seek(int(sys.argv[2]))
    byte = file.read(1)[0]
    file.seek(int(sys.argv[2]))
    file.write(bytes([byte ^ 0x40]))
PYTHON
}

file_tree "$WORK/files" 12 copies
ext4_image "$WORK/first" 64 "$WORK/files"
random 3000000 second >"$WORK/files/second.bin"
ext4_image "$WORK/second" 64 "$WORK/files"
new_store store
platter capture "$WORK/first" lab/disk --note 'the first' --label team=lab >/dev/null
platter capture "$WORK/second" lab/disk >/dev/null
platter clone lab/disk@1 lab/clone >/dev/null
platter export lab/disk@1 "$WORK/first.raw" >/dev/null
platter export lab/disk@2 "$WORK/second.raw" >/dev/null

# Between directories.
new_store other
check "all versions of an image are pushed to a directory" platter_json push lab/disk "$WORK/other"
check "and keep everything: number, time, author, note, labels" same_records store other lab/disk
check "with the right bytes" is_version other lab/disk@2 "$WORK/second.raw"
check "the store is sound" at other check --read-data
check "again, nothing travels" platter_json push lab/disk "$WORK/other"
check "(0 blocks)" [ "$(sent)" = 0 ]
check "a clone travels without data" platter_json push lab/clone "$WORK/other"
check "(0 blocks)" [ "$(sent)" = 0 ]
new_store third
check "one version is pulled" at third pull lab/disk@2 "$WORK/other"
check "only that one" [ "$(at_json third history lab/disk | wc -l)" = 1 ]
check "with the right bytes" is_version third lab/disk@2 "$WORK/second.raw"
check "an older one can follow" at third pull lab/disk "$WORK/store"
check "and both have the same records" same_records store third lab/disk
check_exit "$EXIT_MISSING" "an image that does not exist" at third pull lab/none "$WORK/store"
check_exit "$EXIT_MISSING" "a directory without a store" platter push lab/disk "$WORK/files"
check_exit "$EXIT_USAGE" "a name that may change its meaning" platter push lab/disk@latest "$WORK/other"
at third capture --force "$WORK/files/second.bin" lab/mine >/dev/null
at other capture --force "$WORK/files/numbers.txt" lab/mine >/dev/null
check_exit "$EXIT_REFUSED" "two disks with one name are a conflict" at third push lab/mine "$WORK/other"
check_said "which names the version" 'lab/mine@1'
at third forget lab/disk@1 >/dev/null
check "what was forgotten there stays forgotten" at third pull lab/disk "$WORK/store"
check "(it does)" [ "$(at_json third history lab/disk | wc -l)" = 1 ]
check "unless it is asked for" at third pull --restore lab/disk@1 "$WORK/store"
check "(it is back)" is_version third lab/disk@1 "$WORK/first.raw"

# Through origins.
check "an origin answers" start_origin
TOKEN=$(origin_secret admin)
FINGERPRINT=$(origin_fingerprint)
printf '%s\n' "$TOKEN" >"$WORK/token"
printf '%s\n' "$(origin_secret write)" >"$WORK/token-write"
printf '%s\n' "$(origin_secret admin 'lab/clone')" >"$WORK/token-clone"
# tls TOKEN-FILE: options for the origin over TLS
tls() { echo "https://127.0.0.1:$PORT --fingerprint $FINGERPRINT --token-file $1"; }
new_store fourth
# shellcheck disable=SC2046  # options
check "versions are pulled over TLS" at fourth pull lab/disk $(tls "$WORK/token")
check "with their records" same_records store fourth lab/disk
check "and the right bytes" is_version fourth lab/disk@1 "$WORK/first.raw"
at fourth capture --force "$WORK/files/second.bin" lab/new >/dev/null
# shellcheck disable=SC2046
check_exit "$EXIT_REFUSED" "a token without the role admin may not push" at fourth push lab/new $(tls "$WORK/token-write")
# shellcheck disable=SC2046
check_exit "$EXIT_REFUSED" "nor one for another image" at fourth push lab/new $(tls "$WORK/token-clone")
# shellcheck disable=SC2046
check "versions are pushed over TLS" at fourth push lab/new $(tls "$WORK/token")
check "with their records" same_records store fourth lab/new
new_store fifth
check "one origin to a directory" afar push lab/new "$WORK/fifth"
at fourth export lab/new "$WORK/new.raw" >/dev/null
check "with the right bytes" is_version fifth lab/new@1 "$WORK/new.raw"

# Killed and continued. Most of the data must not travel twice.
random $((96 << 20)) large >"$WORK/large"
at fourth capture --raw "$WORK/large" lab/large >/dev/null
whole=$(at_json fourth show lab/large | jq .new_stored_bytes)
for n in $(seq "$transfers"); do
	for way in to-origin from-origin; do
		rm -rf "$WORK/sixth"
		new_store sixth
		if [ "$way" = to-origin ]; then
			at sixth pull lab/large "$WORK/fourth" >/dev/null
			# Without --restore, nothing of a forgotten version is sent.
			platter_large=(at_json sixth push --restore lab/large "unix:$SOCKET")
			afar forget lab/large@1 >/dev/null 2>&1 || true
			afar gc --keep-trash 0s --yes >/dev/null 2>&1 || true
		else
			platter_large=(at_json sixth pull lab/large "unix:$SOCKET")
			at fourth push lab/large "unix:$SOCKET" >/dev/null
			[ "$(afar --json history lab/large | wc -l)" = 1 ] || at fourth push --restore lab/large@1 "unix:$SOCKET" >/dev/null
		fi
		dir=$WORK/sixth
		[ "$way" = from-origin ] || dir=$STORE
		before=$(du -sb "$dir/packs" | cut -f1)
		"${platter_large[@]}" >/dev/null 2>&1 &
		process=$!
		share=$((20 + $(number "$way $n" 50)))
		until_true 20 sh -c "[ \$((\$(du -sb '$dir/packs' | cut -f1) - $before)) -gt $((whole * share / 100)) ]" || true
		# shellcheck disable=SC2046
		kill -KILL $(pgrep -P "$process" 2>/dev/null) "$process" 2>/dev/null || true
		wait "$process" 2>/dev/null || true
		if [ "$way" = to-origin ]; then
			# The origin takes an upload for abandoned two seconds after its connections ended.
			sleep 3
		fi
		check "$way: killed at $share % and continued" "${platter_large[@]}"
		check "$way: only the rest travels ($(jq .bytes "$LOG") of $whole bytes)" [ "$(jq .bytes "$LOG")" -lt $((whole * (115 - share) / 100)) ]
		if [ "$way" = to-origin ]; then
			check "$way: with the right bytes" sh -c "rm -f '$WORK/exported'; '$PLATTER' --quiet --server 'unix:$SOCKET' export lab/large '$WORK/exported' && cmp '$WORK/large' '$WORK/exported'"
		else
			check "$way: with the right bytes" is_version sixth lab/large "$WORK/large"
		fi
	done
done

# Damage.
cp -r "$WORK/sixth" "$WORK/damaged"
flip_in_largest_pack damaged
new_store seventh
check_exit "$EXIT_CORRUPT" "a damaged block at the source is an error" at damaged push lab/large "$WORK/seventh"
check_said "which names the block" 'block [0-9a-f]{64}'
check "a damaged block at the target is mended" at damaged pull --verify-known lab/large "unix:$SOCKET"
check "(it is whole)" is_version damaged lab/large "$WORK/large"
check "and can be pushed" at damaged push lab/large "$WORK/seventh"
stop_origin TERM

# A copy that was made with other tools.
cp -a "$WORK/seventh" "$WORK/copied"
says_moved() { at "$1" check | grep -q "generation 2: .* copied or moved here from $WORK/$2 " && at_json "$1" copies | jq -e '.home.generation == 2'; }
check "a copy is not noticed before it is written" sh -c "! '$PLATTER' --store '$WORK/copied' check | grep generation"
at copied clone lab/large lab/clone >/dev/null
check "a directory that was copied is noticed" says_moved copied seventh
at seventh clone lab/large lab/clone >/dev/null
check "the original says nothing" sh -c "! '$PLATTER' --store '$WORK/seventh' check | grep generation"
rm "$WORK/copied/home.json"
at copied rename lab/clone lab/renamed >/dev/null
check "without home.json it counts as created there" sh -c "! '$PLATTER' --store '$WORK/copied' check | grep generation"
mv "$WORK/copied" "$WORK/moved"
at moved rename lab/renamed lab/clone >/dev/null
check "a directory that was moved is noticed" says_moved moved copied

# A copy with hard links shares catalog and log with the original.
cp -al "$WORK/moved" "$WORK/linked"
check_exit "$EXIT_REFUSED" "a copy with hard links is not written" at linked clone lab/large lab/again
check_said "which says why" 'copied with hard links'
check_exit "$EXIT_REFUSED" "nor is the original" at moved forget lab/clone --all
cp -a "$WORK/linked" "$WORK/own"
rm -r "$WORK/linked"
mv "$WORK/own" "$WORK/linked"
check "with files of its own it is" at linked clone lab/large lab/again
check "and so is the original" at moved clone lab/large lab/other
check "both are sound" sh -c "'$PLATTER' --store '$WORK/linked' check && '$PLATTER' --store '$WORK/moved' check"
finish
