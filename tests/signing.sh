#!/usr/bin/env bash
# tests/signing.sh: signatures of versions. A machine with trusted keys installs, attaches and receives only versions that such a
# key signed, and none that is older than one it used before. minisign, the independent program, verifies a signature.
. "$(dirname "$0")/lib.sh"

SERVER=
suite_cleanup() {
	local pid
	for pid in $SERVER $ORIGIN; do kill -9 "$pid" 2>/dev/null; done
	"$ROOT/lab/room" down 2>/dev/null
	umount -l "$MNT" 2>/dev/null
}
install_of() { rm -f "$WORK/target" && "$PLATTER" --store "$STORE" --quiet install "$1" "$WORK/target" --yes "${@:2}"; }
is_disk() { cmp -n "$(stat -c %s "$1")" "$1" "$WORK/target"; }

for n in 1 2 3; do random 3145728 "signed $n" >"$WORK/disk-$n"; done
platter init
for n in 1 2; do platter capture --raw "$WORK/disk-$n" lab/disk >/dev/null; done

check "a key without a password" platter key create "$WORK/builder" --no-password
check "the secret key is private" test "$(stat -c %a "$WORK/builder")" = 600
check_exit "$EXIT_REFUSED" "a key is never overwritten" platter key create "$WORK/builder" --no-password
check "a key with a password" env PLATTER_KEY_PASSWORD='correct horse' "$PLATTER" key create "$WORK/release"
check_exit "$EXIT_REFUSED" "no password and no terminal" setsid "$PLATTER" key create "$WORK/other" </dev/null
check "without trusted keys, nothing has to be signed" install_of lab/disk
check "no key is trusted" platter key list
check_said "and that is said" 'no trusted key'

check "a key is trusted" platter key trust "$WORK/release.pub"
check "it is listed" platter key list
check_said "by its file" 'release.pub'
key=$(platter_json key list | jq -r .id)
check_exit "$EXIT_REFUSED" "a version without a signature is not installed" install_of lab/disk
check_said "for that reason" 'not signed'
check "nothing was written" test ! -s "$WORK/target"
for export in "export lab/disk $WORK/exported.raw" "export lab/disk $WORK/exported.qcow2" "export lab/disk -" "export --holes lab/disk $WORK/exported.raw"; do
	# shellcheck disable=SC2086  # words
	check_exit "$EXIT_REFUSED" "nor is it exported: ${export%%"$WORK"*}" platter $export
	check_said "for that reason" 'not signed'
done
check "and no file was made" sh -c "! ls '$WORK'/exported.*"
check_exit "$EXIT_REFUSED" "it is not attached" platter attach lab/disk --nbd "$WORK/nbd.sock"
check_exit "$EXIT_REFUSED" "nor for writing" platter attach lab/disk --write --nbd "$WORK/nbd.sock"
check "and no edit lock was left" test -z "$(platter_json lock list)"
score=$(platter_json show lab/disk | jq -r .score)
check "a score proves the disk by itself" install_of "$score"
check "the disk is right" is_disk "$WORK/disk-2"

check "another key signs" platter sign lab/disk --key "$WORK/builder"
check_exit "$EXIT_REFUSED" "which is not trusted" install_of lab/disk
check_said "and is named" 'not trusted'
check_exit "$EXIT_REFUSED" "a wrong password does not sign" env PLATTER_KEY_PASSWORD=wrong "$PLATTER" --store "$STORE" sign lab/disk --key "$WORK/release"
export PLATTER_KEY_PASSWORD='correct horse'
check "the trusted key signs two versions" platter sign lab/disk@1 lab/disk@2 --key "$WORK/release"
check_exit "$EXIT_REFUSED" "the public key does not sign" platter sign lab/disk --key "$WORK/release.pub"
check_said "and the secret one is named" "release.pub is a public key.*to $WORK/release$"
check "and once more" platter sign lab/disk@2 --key "$WORK/release"
check_said "which changes nothing" 'signed before'
check "the log says so" platter log lab/disk
check_said "with version and action" 'sign lab/disk@2'
check "the signature is verified" platter verify lab/disk
check_said "with the key" "$key"
check "show mentions it" platter show lab/disk
check_said "with the number of signatures" '2 signatures'
check "the signed version is installed" install_of lab/disk
check "the disk is right again" is_disk "$WORK/disk-2"
check_exit "$EXIT_REFUSED" "an older one is refused, although it is signed" install_of lab/disk@1
check_said "because a newer one was used" 'older than lab/disk@2'
check "unless that is allowed" install_of lab/disk@1 --allow-older
check_exit "$EXIT_REFUSED" "nor exported" platter export lab/disk@1 "$WORK/exported.raw"
check "unless that is allowed, too" platter export lab/disk@1 "$WORK/exported.raw" --allow-older
check "a signed version is attached" start_server lab/disk --nbd "$WORK/nbd.sock" --fuse "$MNT"
check "the tree is mounted" until_true 30 test -e "$MNT/lab/disk/2.raw"
check "and in the tree, it is read" cmp "$MNT/lab/disk/2.raw" "$WORK/disk-2"
check "but not an older one" test "$(head -c 512 "$MNT/lab/disk/1.raw" 2>/dev/null | wc -c)" = 0
stop TERM

# minisign verifies the same signature with the same key.
platter_json verify lab/disk >"$WORK/verified.json"
jq -j .statement "$WORK/verified.json" >"$WORK/statement"
jq -j .signature "$WORK/verified.json" >"$WORK/statement.minisig"
check "minisign verifies the statement" minisign -V -p "$WORK/release.pub" -m "$WORK/statement"
sed -i 's/number 2/number 3/' "$WORK/statement"
check_exit 1 "and refuses another one" minisign -V -p "$WORK/release.pub" -m "$WORK/statement"

# Renamed, cloned, forged.
platter rename lab/disk lab/moved
check_exit "$EXIT_REFUSED" "a renamed version has to be signed again" install_of lab/moved
check_said "because its signature names another version" 'not valid for it'
platter rename lab/moved lab/disk
check "under its first name, it is signed as before" install_of lab/disk
platter clone lab/disk lab/clone
check_exit "$EXIT_REFUSED" "a clone is not signed" install_of lab/clone
check "a rebuilt catalog has the signatures" platter rebuild
check "and verifies them" platter verify lab/disk@1 lab/disk@2

# Through an origin, which cannot be made to show something else.
check "an origin starts" start_origin
check_exit "$EXIT_REFUSED" "an origin's clone is not signed either" afar install lab/clone "$WORK/target" --yes
platter capture --raw "$WORK/disk-3" lab/disk >/dev/null
check_exit "$EXIT_REFUSED" "a new version is not signed" afar install lab/disk "$WORK/target" --yes
check "it is signed through the origin" afar sign lab/disk --key "$WORK/release"
rm -f "$WORK/target"
check "and installed from it" afar install lab/disk "$WORK/target" --yes
check "with the right bytes" is_disk "$WORK/disk-3"
stop_origin TERM

# A cast: the receiver decides before it writes.
if need_root "a room of namespaces"; then
	export PLATTER_ROOM=$WORK/room
	"$ROOT/lab/room" up 1 >"$LOG" 2>&1 || not_ok "a room"
	cast_to_one() { # VERSION NAME: leaves the exit code of the receiver in $code
		rm -f "$WORK/target"
		"$ROOT/lab/room" in 1 timeout 120 "$PLATTER" --quiet receive "$2" "$WORK/target" --interface eth0 --yes --give-up 60 >"$WORK/receive.log" 2>&1 &
		local receiver=$!
		"$ROOT/lab/room" in sender timeout 120 "$PLATTER" --store "$STORE" --quiet cast "$1" --interface eth0 --receivers 1 --give-up 60 --linger 1 >"$LOG" 2>&1 &
		local sender=$!
		code=0
		wait "$receiver" || code=$?
		kill "$sender" 2>/dev/null
		wait "$sender" 2>/dev/null || true
		cp "$WORK/receive.log" "$LOG"
	}
	cast_to_one lab/disk lab/disk
	check "a signed version is received" test "$code" = 0
	check "and is right" is_disk "$WORK/disk-3"
	ignored_by_one() { # VERSION NAME WHY: the receiver ignores the cast, names the reason and goes on waiting
		rm -f "$WORK/target"
		"$ROOT/lab/room" in 1 timeout 120 "$PLATTER" receive "$2" "$WORK/target" --interface eth0 --yes >"$WORK/receive.log" 2>&1 &
		local receiver=$!
		"$ROOT/lab/room" in sender timeout 120 "$PLATTER" --store "$STORE" --quiet cast "$1" --interface eth0 --receivers 1 >"$WORK/sender.log" 2>&1 &
		local sender=$!
		check "$1 is ignored: $3" until_true 60 grep "ignored the sender of $1.*$3" "$WORK/receive.log"
		check "and the receiver waits for another cast" kill "$receiver"
		kill "$sender" || true
		wait "$receiver" "$sender" || true
		check "and nothing was written" test ! -s "$WORK/target"
	}
	ignored_by_one lab/clone lab/clone "is not signed"
	ignored_by_one lab/disk@1 lab/disk "is older than lab/disk@"
fi

# Damage closes the machine.
echo nonsense >"$PLATTER_TRUSTED_KEYS/other.pub"
check_exit "$EXIT_REFUSED" "with an unreadable key file, nothing is installed" install_of lab/disk
rm "$PLATTER_TRUSTED_KEYS/other.pub"
echo nonsense >"$PLATTER_TRUSTED_KEYS/newest-seen.json"
check_exit "$EXIT_CORRUPT" "nor with a damaged list of used versions" install_of lab/disk
rm "$PLATTER_TRUSTED_KEYS/newest-seen.json"
check_exit "$EXIT_MISSING" "a key that is not trusted cannot be distrusted, named by its file" platter key distrust "$WORK/builder.pub"
check "a key is no longer trusted" platter key distrust "$WORK/release.pub"
check_said "(that of the file)" "$key"
check "then nothing has to be signed" install_of lab/clone

finish
