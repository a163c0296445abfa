#!/usr/bin/env bash
# tests/encrypted.sh: encrypted stores. A marker of the captured disk is in no file of the store; a store without its key, or with
# a wrong one, says so; key slots are added, changed and removed without rewriting data; what is not supported is refused.
. "$(dirname "$0")/lib.sh"

attached='' mounted=''
suite_cleanup() {
	[ -z "$mounted" ] || umount "$mounted" 2>/dev/null
	[ -z "$attached" ] || kill -9 "$attached" 2>/dev/null
}

MARKER="the plaintext marker of seed $SEED"
KEY=$WORK/key
# A disk whose blocks do not compress, so that a plain store holds the marker as it is.
random 2097152 "encrypted 1" >"$WORK/disk"
for at in 0 77 1000 2048 4000; do printf '%s' "$MARKER" | dd of="$WORK/disk" bs=512 seek="$at" conv=notrunc status=none; done
cp "$WORK/disk" "$WORK/disk-2"
random 65536 "encrypted 2" | dd of="$WORK/disk-2" bs=65536 seek=9 conv=notrunc status=none

# files_with_marker DIR: the files in which the marker is
files_with_marker() { grep -rlaF -- "$MARKER" "$1"; }
no_marker() { ! files_with_marker "$1"; }
locked() { env -u PLATTER_UNLOCK_FILE -u PLATTER_UNLOCK_COMMAND setsid timeout -s KILL 300 "$PLATTER" --store "$STORE" "$@" </dev/null; }
with_file() { locked --unlock-file "$1" "${@:2}"; }
with_command() { locked --unlock-command "$1" "${@:2}"; }
installs() { rm -f "$WORK/target" && platter install "$1" "$WORK/target" --yes && cmp "$2" "$WORK/target"; }

check "a plain store" "$PLATTER" --store "$WORK/plain" init
check "captures the disk" "$PLATTER" --store "$WORK/plain" capture --raw "$WORK/disk" lab/disk
check "and holds the marker, so the search below can find it" files_with_marker "$WORK/plain"

check "an encrypted store, with a new key file" platter init --encrypt --unlock-file "$KEY"
check_said "the user is told to keep a copy" 'keys.json'
check "the key file is private" test "$(stat -c %a "$KEY")" = 600
check "and so are the key slots" test "$(stat -c %a "$STORE/keys.json")" = 600
check "a store with a key file named as for a further slot" "$PLATTER" --store "$WORK/new" init --encrypt --new-file "$WORK/new-key"
check "the key file is created" test -s "$WORK/new-key"
check "and opens it" "$PLATTER" --store "$WORK/new" --unlock-file "$WORK/new-key" capture --raw "$WORK/disk" lab/disk
check_exit "$EXIT_USAGE" "a key file for a store that is not encrypted" "$PLATTER" --store "$WORK/none-plain" init --new-file "$WORK/no-key"
check_said "needs --encrypt" 'add --encrypt'
check "and creates nothing" test ! -e "$WORK/no-key" -a ! -e "$WORK/none-plain/store.json"
export PLATTER_UNLOCK_FILE=$KEY
check "a disk is captured" platter capture --raw "$WORK/disk" lab/disk
check "it is installed" installs lab/disk "$WORK/disk"
check "its next version is captured" platter capture --raw "$WORK/disk-2" lab/disk
check "and installed" installs lab/disk "$WORK/disk-2"
check "blocks were deduplicated" test "$(platter_json show lab/disk | jq .new_raw_bytes)" -lt 300000
check "the score is not the plain one" test "$(platter_json show lab/disk@1 | jq -r .score)" != "$("$PLATTER" --store "$WORK/plain" --json show lab/disk | jq -r .score)"
check "it is exported" platter export lab/disk@1 "$WORK/exported"
check "with the right bytes" cmp "$WORK/disk" "$WORK/exported"
platter attach lab/disk@1 --nbd "$WORK/nbd.sock" >"$WORK/attach.log" 2>&1 &
attached=$!
until_true 60 test -S "$WORK/nbd.sock"
check "it is read as a live disk" nbdcopy "nbd+unix:///?socket=$WORK/nbd.sock" "$WORK/copied"
check "with the right bytes, too" cmp "$WORK/disk" "$WORK/copied"
kill "$attached"
wait "$attached" || :
attached=
check "check finds nothing wrong" platter check --read-data
check "the marker is in no file of the store" no_marker "$STORE"

check "names are readable without a key" locked images
check_said "and listed" 'lab/disk'
for words in "install lab/disk $WORK/none --yes" "export lab/disk $WORK/none" "capture --raw $WORK/disk lab/other" "gc" "rebuild" "discard-interrupted" "diff lab/disk@1 lab/disk@2" \
	"ls lab/disk" "find lab/disk:/" "cat lab/disk:/none" "mount lab/disk $MNT" "attach lab/disk --nbd $WORK/none.sock" "cast lab/disk --key-file $KEY"; do
	# shellcheck disable=SC2086  # split into arguments
	check_exit "$EXIT_REFUSED" "without a key, ${words%% *} is refused" locked $words
	check_said "and says what is missing" 'the store is encrypted: name its secret with --unlock-file or --unlock-command [(]the key of domain '
done
check "nothing was written" test ! -s "$WORK/none"
check_exit "$EXIT_REFUSED" "check without a key does not call the store clean" locked check --read-data
check_said "and says what it did not do" ': locked$'
check_said "and why" 'encrypted and locked.*of contents only checksums were verified'
check_exit "$EXIT_REFUSED" "nor without contents" locked check
check_said "which it says" 'contents were not read'
check_exit "$EXIT_REFUSED" "nor as JSON" locked --json check
check_said "with the verdict locked" '"verdict":"locked"'
random 64 "another key" >"$WORK/wrong"
chmod 600 "$WORK/wrong"
check_exit "$EXIT_REFUSED" "a wrong key file is refused" with_file "$WORK/wrong" export lab/disk "$WORK/none"
check_said "for that reason" 'opens none'
check_exit "$EXIT_REFUSED" "and so is a wrong command" with_command 'echo wrong' export lab/disk "$WORK/none"
check_exit "$EXIT_REFUSED" "and one that fails" with_command 'echo right; false' export lab/disk "$WORK/none"
check_said "with its exit status" 'exit status: 1'
check_exit "$EXIT_MISSING" "a missing key file is named" with_file "$WORK/no-file" export lab/disk "$WORK/none"

packs_before=$(find "$STORE/packs" -type f -exec sha256sum {} + | sort)
check "a command is added" platter encryption add --new-command "echo 'correct horse'" --label server
check "and a second key file" platter encryption add --new-file "$WORK/key-2"
check "three slots are listed, without a key" locked encryption list
check_said "with their labels" '2 +command +server'
check "the command opens the store" with_command "printf 'correct horse'" export lab/disk "$WORK/by-command"
check "and so does the second file" with_file "$WORK/key-2" export lab/disk "$WORK/by-file"
check "to the same bytes" cmp "$WORK/by-command" "$WORK/by-file"
check_exit "$EXIT_REFUSED" "a locked store adds no slot" locked encryption add --new-file "$WORK/key-3"
check_exit "$EXIT_MISSING" "a slot that does not exist is not changed" with_file "$WORK/key-2" encryption change 9 --new-file "$WORK/key-3"
check "and no key file was created for it" test ! -e "$WORK/key-3"
check "a slot is changed" with_file "$WORK/key-2" encryption change 2 --new-command "echo 'new secret'"
check_exit "$EXIT_REFUSED" "its old secret opens nothing" with_command "echo 'correct horse'" gc
check "its new one does" with_command "echo 'new secret'" check
check "the first slot is removed" with_file "$WORK/key-2" encryption remove 1
check_exit "$EXIT_REFUSED" "its key file opens nothing" with_file "$KEY" gc
export PLATTER_UNLOCK_FILE=$WORK/key-2
check "another slot is removed" platter encryption remove 2
check_exit "$EXIT_REFUSED" "the last one stays" platter encryption remove 3
check "no pack was changed" test "$packs_before" = "$(find "$STORE/packs" -type f -exec sha256sum {} + | sort)"
chmod 640 "$WORK/key-2"
check "a key file that others can read still works" "$PLATTER" --store "$STORE" export lab/disk "$WORK/by-wide"
check_said "with a warning" 'chmod 600'
chmod 600 "$WORK/key-2"

check_exit "$EXIT_REFUSED" "a push to a plain store is refused" platter push lab/disk "$WORK/plain"
check_said "with the reason" 'the source is encrypted.*same-key-as.*platter export'
check_exit "$EXIT_REFUSED" "and one from a plain store" "$PLATTER" --store "$WORK/plain" push lab/disk "$STORE"
check_said "with another one" 'the source is not encrypted.*platter capture'
check_exit "$EXIT_REFUSED" "a plain store heals nothing here" platter heal --from "$WORK/plain"
check_said "which it says" 'it is not encrypted, and the store to heal is'
check "a store with the same key" "$PLATTER" --store "$WORK/same" init --same-key-as "$STORE/keys.json"
check "gets versions pushed" platter push lab/disk@1 "$WORK/same"
check "with the same score" test "$(platter_json show lab/disk@1 | jq -r .score)" = "$("$PLATTER" --store "$WORK/same" --json show lab/disk@1 | jq -r .score)"
check "and the marker is in no file of it" no_marker "$WORK/same"

check "a version is forgotten" platter forget lab/disk@1
check "and collected" platter gc --keep-trash 0s --yes
check "the other version is as it was" installs lab/disk "$WORK/disk-2"
rm "$STORE/store.json" "$STORE/catalog.sqlite" "$STORE/changes.log"
check_exit "$EXIT_REFUSED" "a store without catalog is not rebuilt without its key" locked rebuild
check "but with it" platter rebuild
check "and its version is there" installs lab/disk "$WORK/disk-2"
check "and nothing is wrong" platter check --read-data

# Exchanged files: nothing is written.
mkdir "$WORK/original"
cp -p "$STORE/store.json" "$STORE/keys.json" "$WORK/original"
id=$(jq -r .id "$STORE/store.json")
packs_before=$(find "$STORE/packs" -type f -exec sha256sum {} + | sort)
# exchanged NAME COMMAND...: no command writes to the store
exchanged() {
	local name=$1
	shift
	check_exit "$EXIT_CORRUPT" "$name: a capture is refused" "$@" capture --raw "$WORK/disk" lab/exchanged
	check_said "$name: the way out is named" 'put back the original|Put back the original'
	check_exit "$EXIT_CORRUPT" "$name: gc is refused" "$@" gc
	check "$name: no pack was written" test "$packs_before" = "$(find "$STORE/packs" -type f -exec sha256sum {} + | sort)"
}
echo "{\"platter_store\":1,\"id\":\"$id\"}" >"$STORE/store.json"
exchanged "a store.json without encryption" platter
check "a rebuild restores it" platter rebuild
check "to what it was" cmp "$STORE/store.json" "$WORK/original/store.json"
echo "{\"platter_store\":1,\"id\":\"$id\"}" >"$STORE/store.json"
rm "$STORE/keys.json"
exchanged "and without keys.json" platter
check_exit "$EXIT_CORRUPT" "a rebuild does not believe it" platter rebuild
cp -r "$STORE" "$WORK/bare"
rm "$WORK/bare/catalog.sqlite" "$WORK/bare/changes.log"
check_exit "$EXIT_CORRUPT" "not even without catalog" "$PLATTER" --store "$WORK/bare" rebuild
check "another encrypted store" "$PLATTER" --store "$WORK/other" init --encrypt --unlock-file "$WORK/other-key"
cp "$WORK/other/keys.json" "$STORE/keys.json"
jq -c ".id = \"$id\" | del(.checksum)" "$WORK/other/store.json" >"$STORE/store.json"
exchanged "the files of another store" with_file "$WORK/other-key"
check_exit "$EXIT_CORRUPT" "a rebuild does not believe them" with_file "$WORK/other-key" rebuild
check_exit "$EXIT_CORRUPT" "and no slot is added" with_file "$WORK/other-key" encryption add --new-file "$WORK/none-key"
check "and no key file stays" test ! -e "$WORK/none-key"
cp -p "$WORK/original"/* "$STORE"
check "with the original files all is well" platter check --read-data

mv "$STORE/keys.json" "$WORK/keys.json"
check_exit "$EXIT_CORRUPT" "without its key slots the store is not opened" platter export lab/disk "$WORK/none"
check_said "and the missing file is named" 'keys.json is missing'
check_exit "$EXIT_CORRUPT" "check says so, too" platter check
check_exit "$EXIT_CORRUPT" "so does a rebuild" platter rebuild
check_said "instead of asking for a secret" 'keys.json is missing'
cp "$WORK/keys.json" "$STORE/keys.json"
chmod 600 "$STORE/keys.json"
check "with a copy of them it is" installs lab/disk "$WORK/disk-2"
check "the marker is in no file of the store at the end" no_marker "$STORE"

# Key files that are not to be created, or not to stay.
check_exit "$EXIT_REFUSED" "a key file in the store's own directory" platter encryption add --new-file "$STORE/key-4"
check_said "is refused with the reason" 'every copy of the store'
check "and not created" test ! -e "$STORE/key-4"
mkdir "$WORK/full"
touch "$WORK/full/other"
check_exit "$EXIT_REFUSED" "a store that cannot be created" "$PLATTER" --store "$WORK/full" init --encrypt --unlock-file "$WORK/key-5"
check "leaves no key file" test ! -e "$WORK/key-5"
: >"$WORK/key-6"
check_exit "$EXIT_REFUSED" "an empty file is no key file" platter encryption add --new-file "$WORK/key-6"
check "and is not filled" test ! -s "$WORK/key-6"
head -c 32 /dev/urandom >"$WORK/key-6"
chmod 622 "$WORK/key-6"
check_exit "$EXIT_REFUSED" "nor is one that others may write" platter encryption add --new-file "$WORK/key-6"
chmod 600 "$WORK/key-6"
ln -s key-6 "$WORK/key-link"
check_exit "$EXIT_REFUSED" "nor is a link" platter encryption add --new-file "$WORK/key-link"
if need_root "a file of another user"; then
	chown 12345 "$WORK/key-6"
	check_exit "$EXIT_REFUSED" "nor is another user's" platter encryption add --new-file "$WORK/key-6"
	chown 0 "$WORK/key-6"
fi
check "one that this user made is" platter encryption add --new-file "$WORK/key-6"
check "and opens the store" with_file "$WORK/key-6" check
mkfifo "$WORK/fifo"
for file in /dev/zero "$WORK/fifo" "$WORK"; do
	check_exit "$EXIT_REFUSED" "$file has no key slots" timeout -s KILL 60 "$PLATTER" --store "$WORK/none-store" init --same-key-as "$file"
done

# Sources that are unpacked: the marker is in no byte of the file system that has the store, not even in free space.
if need_root "a file system of its own"; then
	gzip -c "$WORK/disk" >"$WORK/disk.gz"
	truncate -s 96M "$WORK/filesystem"
	mke2fs -q -t ext4 "$WORK/filesystem"
	attach "$WORK/filesystem"
	mkdir "$WORK/mount"
	mount "$DEVICE" "$WORK/mount"
	mounted=$WORK/mount
	unpacked() { "$PLATTER" --store "$WORK/mount/store" --quiet --unlock-file "$WORK/key-7" "$@"; }
	check "a store on it" "$PLATTER" --store "$WORK/mount/store" init --encrypt --unlock-file "$WORK/key-7"
	check "a compressed disk is captured" unpacked capture --raw --format raw.gz "$WORK/disk.gz" lab/gz
	check "and one from standard input" unpacked capture --raw - lab/stdin <"$WORK/disk-2"
	check "with the right bytes" unpacked export lab/gz "$WORK/from-gz"
	check "of the first" cmp "$WORK/disk" "$WORK/from-gz"
	check "and of the second" sh -c "'$PLATTER' --store '$WORK/mount/store' --unlock-file '$WORK/key-7' export lab/stdin - | cmp - '$WORK/disk-2'"
	umount "$WORK/mount"
	mounted=
	detach_loop "$DEVICE"
	check "the marker is nowhere on the file system" sh -c "! grep -qaF -- '$MARKER' '$WORK/filesystem'"
fi

finish
