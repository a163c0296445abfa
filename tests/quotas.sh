#!/usr/bin/env bash
# tests/quotas.sh: limits for the images below a name. Whatever adds to such an image counts its distinct blocks, whoever else has
# them, and is refused beyond the limit, here and at an origin: capture, clone, import, publish, rename. Forgetting makes room. Quotas are
# in the log, outlive the catalog, and reach followers.
. "$(dirname "$0")/lib.sh"

SERVER=
suite_cleanup() {
	local process
	for process in $SERVER $ORIGIN; do kill -KILL "$process" 2>/dev/null; done
}
is() {
	[ "$1" = "$2" ] || {
		printf 'is    %s\nnot   %s\n' "$1" "$2"
		return 1
	}
}
used() { platter_json quota list | jq -r "select(.prefix == \"$1\") | .used_bytes"; }
between() { echo "$1 is not between $2 and $3" && [ "$1" -ge "$2" ] && [ "$1" -le "$3" ]; }
over_quota() { # NAME COMMAND...
	check_exit "$EXIT_REFUSED" "$@"
	check_said "(it names the quota, its use, and what to do)" 'quota of (lab|x) is [0-9]+ bytes, of which [0-9]+ are used.*forget versions'
}
sent_bytes() { curl -s --unix-socket "$SOCKET" http://origin/metrics | awk '$1 == "platter_upload_bytes_total" { print $2 }'; }
uri() { echo "nbd+unix:///$1?socket=$WORK/nbd.sock"; }

# Disks of 1 MiB that do not compress; two and three differ from one in 64 KiB.
random 1048576 one >"$WORK/one"
for n in two three; do { random 65536 "$n" && tail -c +65537 "$WORK/one"; } >"$WORK/$n"; done
random 1048576 four >"$WORK/four"
platter init >/dev/null
check "there are no quotas" is "$(platter_json quota list)" ''
check "another image has a disk" platter capture --raw "$WORK/one" elsewhere/disk
check_exit "$EXIT_MISSING" "a quota that does not exist is not removed" platter quota remove lab
check "a quota is set" platter quota set lab 1300K
check "nothing is used" is "$(used lab)" 0
check "a disk is captured" platter capture --raw "$WORK/one" lab/disk
check "it counts, although another image has it" between "$(used lab)" 1048576 1060000
before=$(used lab)
check "a clone costs nothing" platter clone lab/disk lab/clone
check "(as it says)" is "$(used lab)" "$before"
check "a version with changes" platter capture --raw "$WORK/two" lab/disk
check "costs what has changed" between "$(($(used lab) - before))" 65536 75000
over_quota "another disk is refused" platter capture --raw "$WORK/four" lab/four
check_exit "$EXIT_MISSING" "and not published" platter show lab/four
check "other images have no limit" platter capture --raw "$WORK/four" elsewhere/four
over_quota "a clone of it is refused" platter clone elsewhere/four lab/four
over_quota "and a rename" platter rename elsewhere lab/elsewhere
check "with json, it is an error of kind refused" jq -e '.kind == "refused"' <(platter_json rename elsewhere lab/elsewhere 2>&1)
check "the quota is raised" platter quota set lab 3M
check "then it is renamed" platter rename elsewhere lab/elsewhere
check "and counts" between "$(used lab)" 2162688 2200000
check "it returns" platter rename lab/elsewhere elsewhere
check "the log says who set it" sh -c "'$PLATTER' --store '$STORE' log | grep -q 'set quota of lab to 3000000 bytes'"
check "the quota is lowered below what is used" platter quota set lab 1M
over_quota "nothing can be added" platter capture --raw "$WORK/three" lab/disk
check "a disk that has not changed is captured again" platter capture --raw "$WORK/two" lab/disk
check "what is forgotten makes room" platter forget lab/disk --all
check "(the clone still counts)" between "$(used lab)" 1048576 1060000
check "without it, there is nothing" platter forget lab/clone --all
check "(nothing is used)" is "$(used lab)" 0

# Writable disks: the changes stay until there is room.
platter quota set lab 1100K >/dev/null
platter capture --raw "$WORK/one" lab/live >/dev/null
check "a disk is served for writing" start_server --write lab/live --nbd "$WORK/nbd.sock"
check "it is written" qemu-io -f raw -c "write -s $WORK/four 0 512k" "$(uri lab/live)"
stop TERM
over_quota "its changes are not published" platter publish lab/live
check "they are kept" sh -c "'$PLATTER' --store '$STORE' --json disks | jq -es '.[0].written_bytes == 524288'"
platter quota set lab 2M >/dev/null
check "with room, they are published" platter publish lab/live
{ head -c 524288 "$WORK/four" && tail -c +524289 "$WORK/one"; } >"$WORK/written"
check "with every byte" cmp "$WORK/written" <(platter export lab/live -)

# Another store.
"$PLATTER" --store "$WORK/other" --quiet init >/dev/null
"$PLATTER" --store "$WORK/other" --quiet capture --raw "$WORK/four" lab/four >/dev/null
over_quota "a push into it is refused" "$PLATTER" --store "$WORK/other" push lab/four "$STORE"
over_quota "and a pull" platter pull lab/four "$WORK/other"
platter quota set lab 10M >/dev/null
check "with room, it is pushed" "$PLATTER" --store "$WORK/other" push lab/four "$STORE"
platter forget lab/four --all >/dev/null
platter quota set lab 2M >/dev/null
check "what was forgotten here stays so, and does not count" "$PLATTER" --store "$WORK/other" push lab/four "$STORE"
check_exit "$EXIT_MISSING" "(it is not here)" platter show lab/four

# An origin.
check "an origin answers" start_origin
check "it lists the quota" is "$(afar --json quota list)" "$(platter_json quota list)"
over_quota "a capture through it is refused" afar capture --raw "$WORK/four" lab/four
over_quota "and a clone" afar clone elsewhere/four lab/four
TOKEN=$(origin_secret admin 'lab/*')
FINGERPRINT=$(origin_fingerprint)
check_exit "$EXIT_REFUSED" "only an administrator of everything sets quotas" afar_tls quota set lab 1T
check "an administrator does" afar quota set lab 10M
check "then the disk is captured" afar capture --raw "$WORK/four" lab/four
check "the quota that allowed it is shown" sh -c "'$PLATTER' --server 'unix:$SOCKET' quota list | grep -q 'lab .*10.0 MB'"

# Access tokens with a quota: all images that they cover count.
# shellcheck disable=SC2034  # afar_tls uses it
TOKEN=$(platter_json serve token add tenant --role write --images 'tenant/*' --quota 1500K | jq -r .secret)
check "token list shows the quota" sh -c "'$PLATTER' --store '$STORE' serve token list | grep -q 'tenant/.* 1.50 MB'"
check "a token captures within its quota" afar_tls capture --raw "$WORK/one" tenant/one
check "and clones" afar_tls clone tenant/one tenant/two
check_exit "$EXIT_REFUSED" "beyond it, a capture is refused" afar_tls capture --raw "$WORK/four" tenant/four
check_said "(it names the token, and the use)" 'quota of the access token "tenant" is 1500000 bytes, of which 10[0-9]+ are used'
random $((4 << 20)) large >"$WORK/large"
sent=$(sent_bytes)
check_exit "$EXIT_REFUSED" "an upload beyond it is refused" afar_tls capture --raw "$WORK/large" tenant/large
check_said "(while it is sent)" 'unfinished uploads of this access token hold .* bytes, and 1687500 are allowed'
check "(not all of it)" test $(($(sent_bytes) - sent)) -lt 3000000
check "it sees no quota of others" is "$(afar_tls --json quota list)" ''
check "a quota of the prefix is set" afar quota set tenant 1T
check "it sees that one" is "$(afar_tls --json quota list | jq -r .prefix)" tenant
afar quota remove tenant >/dev/null
check "what changes a little is captured" afar_tls capture --raw "$WORK/two" tenant/one
check "other clients have no limit there" afar capture --raw "$WORK/four" tenant/four
check_exit "$EXIT_REFUSED" "that counts, too" afar_tls capture --raw "$WORK/three" tenant/three

# Followers, and the rebuild.
"$PLATTER" --store "$WORK/follower" --quiet init >/dev/null
check "a follower gets the quota" "$PLATTER" --store "$WORK/follower" --quiet follow --once "unix:$SOCKET"
check "(the same)" is "$("$PLATTER" --store "$WORK/follower" --json quota list)" "$(platter_json quota list)"
stop_origin TERM
before=$(platter_json quota list)
rm -f "$STORE"/catalog.sqlite*
check "the catalog is rebuilt" platter rebuild
check "with its quotas" is "$(platter_json quota list)" "$before"
check "a quota is removed" platter quota remove lab
check "there is none" is "$(platter_json quota list)" ''
check "the store is sound" platter check --read-data
finish
