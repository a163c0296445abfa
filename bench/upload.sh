#!/usr/bin/env bash
# bench/upload.sh CATALOG-DIR
#
# A version that the origin mostly has is captured to it over a link of UPLOAD_MBIT (100) Mbit/s and UPLOAD_RTT (1) ms, TLS included:
# UPLOAD_DISK (bookworm-desktop) with files of another release, a twentieth of what is in use, copied to where they stand there. Told
# as a ratio to what the frames of its new blocks need on that link by themselves, in bytes and in time. Then once more, and the link
# is cut when half of it came. Each run begins with the store as it was, and the disk in this machine's memory. The link is lab/relay.
#   UPLOAD_DONOR  where the files are from (default: trixie-web)
. "$(dirname "$0")/lib.sh"
CATALOG=${1:?usage: bench/upload.sh CATALOG-DIR}
MBIT=${UPLOAD_MBIT:-100}
RTT=${UPLOAD_RTT:-1}
DISK=$CATALOG/${UPLOAD_DISK:-bookworm-desktop}.raw
DONOR=$CATALOG/${UPLOAD_DONOR:-trixie-web}.raw
readonly LIMIT=180 CUT_SECONDS=3 ORIGIN_PORT=25664 FAR_PORT=25665
bench_cleanup() { ! mountpoint -q "$WORK/donor" || umount "$WORK/donor"; }
root_of() { ext4_parts "$1" | sort -n -k 2 | tail -n 1; }

# --- the new version
mkdir "$WORK/donor"
read -r offset length < <(root_of "$DONOR")
mount -t ext4 -o "ro,noload,loop,offset=$offset,sizelimit=$length" "$DONOR" "$WORK/donor"
cp --sparse=always "$DISK" "$WORK/new.raw"
read -r offset length < <(root_of "$WORK/new.raw")
attach "$WORK/new.raw" --offset "$offset" --sizelimit "$length"
mount "$DEVICE" "$MNT"
wanted=$(($(df --output=used -B1 "$MNT" | tail -n 1) / 20))
(cd "$WORK/donor" && find usr -type f -size +16k -printf '%s %p\n') | sort -k 2 |
	awk -v wanted="$wanted" '{ sum += $1 } sum <= wanted { print $2 }' >"$WORK/files"
(cd "$WORK/donor" && xargs -a "$WORK/files" cp --parents --remove-destination -t "$MNT")
umount "$MNT"
umount "$WORK/donor"
detach "$DEVICE"
new_store
platter capture "$DISK" bench/disk >/dev/null
mv "$STORE" "$WORK/known"

# --- over the link
link() {
	begin "$WORK/link.log" "$ROOT/lab/relay" link --seconds "$LIMIT" --delay-ms "$(calculate "$RTT / 2")" --mbit "$MBIT" "$FAR_PORT=$ORIGIN_PORT"
	LINK=$SERVER
}
is_reached() { openssl s_client -connect "127.0.0.1:$FAR_PORT" </dev/null >"$WORK/certificate"; }
serve() { # with the store as it was
	rm -rf "$STORE"
	cp -a "$WORK/known" "$STORE"
	begin "$WORK/origin.log" "$PLATTER" --store "$STORE" --quiet serve --listen "127.0.0.1:$ORIGIN_PORT" --listen "unix:$WORK/origin.sock"
	ORIGIN=$SERVER
	link
	wait_for is_reached
	FINGERPRINT=$(openssl x509 -in "$WORK/certificate" -outform DER | sha256sum | cut -d' ' -f1)
	TOKEN=$(platter_json serve token add bench --role write --images '*' | jq -r .secret)
	cat "$WORK/new.raw" >/dev/null
}
far_capture() { PLATTER_TOKEN=$TOKEN timeout "$LIMIT" "$PLATTER" --server "https://127.0.0.1:$FAR_PORT" --fingerprint "$FINGERPRINT" --quiet --json capture "$WORK/new.raw" bench/disk; }
came() { curl -sf --unix-socket "$WORK/origin.sock" http://origin/metrics | awk '$1 == "platter_upload_bytes_total" { printf "%d", $2 }'; }
figure() { jq "$1" "$WORK/output"; }

heading "$(basename "$DISK" .raw) with $((wanted / 1000000)) MB of other files, captured over $MBIT Mbit/s and $RTT ms"
for _ in $(seq "$RUNS"); do
	serve
	timed upload far_capture
	calculate "$(came) / $(figure .new_stored_bytes)" >>"$WORK/times/bytes"
	calculate "$(tail -n 1 "$WORK/times/upload") * $MBIT * 1e6 / 8 / $(figure .new_stored_bytes)" >>"$WORK/times/ratio"
	end "$LINK"
	end "$ORIGIN"
done
result "its new blocks, as stored" "$(calculate "$(figure .new_stored_bytes) / 1e6") MB"
result "bytes sent, against that" "$(median bytes)" "at most 1.15"
result "time, against that over the link" "$(median ratio)" "at most 1.15"
score=$(figure .score)

serve
half() { [ "$(came)" -gt "$(($(figure .new_stored_bytes) / 2))" ]; }
far_capture >"$WORK/resumed" 2>&1 &
capture=$!
wait_for half
end "$LINK"
[ "$(came)" -lt "$(figure .new_stored_bytes)" ] || { echo "upload: it was over before the cut" >&2; exit 1; }
sleep "$CUT_SECONDS"
link
wait "$capture" || { echo "upload: it was not resumed" >&2; tail -n 3 "$WORK/resumed" >&2; exit 1; }
[ "$(jq .score "$WORK/resumed")" = "$score" ] || { echo "upload: the resumed version is another" >&2; exit 1; }
result "cut for $CUT_SECONDS s, bytes sent" "$(calculate "$(came) / $(figure .new_stored_bytes)")"
