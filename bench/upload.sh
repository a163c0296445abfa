#!/usr/bin/env bash
# bench/upload.sh CATALOG-DIR
#
# Captures a version that the origin mostly has, over a link of UPLOAD_MBIT (100) Mbit/s in each direction (lab/room),
# with TLS. The version is UPLOAD_DISK (bookworm-desktop) plus files of another release, a twentieth of the space in use.
# Results are ratios to the frames of the new blocks: bytes of the sent frames and of all packets with headers, and the
# time compared with one TCP connection that sends as many bytes over the same link. A second run breaks every connection
# for UPLOAD_CUT (3) seconds when half of the data has arrived. Each run starts with the same store, and with the disk in
# this machine's memory.
#   UPLOAD_DONOR  where the files are from (default: trixie-web)
. "$(dirname "$0")/lib.sh"
CATALOG=${1:?usage: bench/upload.sh CATALOG-DIR}
MBIT=${UPLOAD_MBIT:-100}
CUT=${UPLOAD_CUT:-3}
DISK=$CATALOG/${UPLOAD_DISK:-bookworm-desktop}.raw
DONOR=$CATALOG/${UPLOAD_DONOR:-trixie-web}.raw
ROOM=$ROOT/lab/room
export PLATTER_ROOM=$WORK/room
readonly LIMIT=180 ORIGIN=10.78.0.200 PORT=7440 FLOW_PORT=7441
bench_cleanup() {
	end_begun
	! mountpoint -q "$WORK/donor" || umount "$WORK/donor"
	"$ROOM" down
}
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
"$ROOM" up 1
"$ROOM" links "${MBIT}mbit"
on_origin() { "$ROOM" in sender "$@"; }
afar() { "$ROOM" in 1 "$@"; }
serve() { # with the store as it was
	rm -rf "$STORE"
	cp -a "$WORK/known" "$STORE"
	begin "$WORK/origin.log" "$ROOM" in sender "$PLATTER" --store "$STORE" --quiet serve --listen "$ORIGIN:$PORT" --listen "unix:$WORK/origin.sock"
	ORIGIN_PROCESS=$SERVER
	wait_for came
	FINGERPRINT=$(openssl x509 -in "$STORE/serve-certificate.pem" -outform DER | sha256sum | cut -d' ' -f1)
	PLATTER_TOKEN=$(platter_json serve token add bench --role write --images '*' | jq -r .secret)
	export PLATTER_TOKEN
	cat "$WORK/new.raw" >/dev/null
}
far_capture() { afar timeout "$LIMIT" "$PLATTER" --server "https://$ORIGIN:$PORT" --fingerprint "$FINGERPRINT" --quiet --json capture "$WORK/new.raw" bench/disk; }
came() { curl -sf --unix-socket "$WORK/origin.sock" http://origin/metrics | awk '$1 == "platter_upload_bytes_total" { printf "%d", $2 }'; }
figure() { jq "$1" "$WORK/output"; }
one_flow() { # BYTES
	local taker
	begin "$WORK/flow.log" "$ROOM" in sender "$ROOT/bench/one_flow.py" take "$FLOW_PORT"
	taker=$SERVER
	wait_for eval '[ -n "$(on_origin ss -tlnH "sport = :$FLOW_PORT")" ]'
	afar "$ROOT/bench/one_flow.py" give "$ORIGIN" "$FLOW_PORT" "$1" >>"$WORK/times/flow"
	wait "$taker"
	unset "RUNNING[$taker]"
}

heading "$(basename "$DISK" .raw) with $((wanted / 1000000)) MB of other files, captured over $MBIT Mbit/s"
for _ in $(seq "$RUNS"); do
	serve
	before=$("$ROOM" sent 1)
	timed upload far_capture
	sent=$(($("$ROOM" sent 1) - before))
	needed=$(figure .new_stored_bytes)
	calculate "$(came) / $needed" >>"$WORK/times/frames"
	calculate "$sent / $needed" >>"$WORK/times/packets"
	end "$ORIGIN_PROCESS"
	one_flow "$needed"
done
result "its new blocks, as stored" "$(calculate "$needed / 1e6") MB"
result "frames sent, against that" "$(median frames)" "at most 1.15"
result "all packets, against that" "$(median packets)" "at most 1.15"
result "time, against as many bytes by one flow" "$(calculate "$(median upload) / $(median flow)")" "at most 1.15"
score=$(figure .score)

serve
half() { [ "$(came)" -gt "$((needed / 2))" ]; }
far_capture >"$WORK/resumed" 2>&1 &
capture=$!
wait_for half
afar nft -f - <<-EOF
	table inet cut {
		chain output {
			type filter hook output priority 0;
			tcp dport $PORT reject with tcp reset
		}
	}
EOF
[ "$(came)" -lt "$needed" ] || { echo "upload: it was over before the cut" >&2; exit 1; }
sleep "$CUT"
afar nft delete table inet cut
wait "$capture" || { echo "upload: it was not resumed" >&2; tail -n 3 "$WORK/resumed" >&2; exit 1; }
[ "$(jq .score "$WORK/resumed")" = "$score" ] || { echo "upload: the resumed version is another" >&2; exit 1; }
result "all connections broken for $CUT s, frames sent" "$(calculate "$(came) / $needed")"
