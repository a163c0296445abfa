#!/usr/bin/env bash
# tests/serve.sh: an origin through the unix socket and over TLS: every role and pattern at every endpoint, wrong tokens,
# bodies that are too long, truncated or slow, many idle connections with and without a token, restarts under load, and
# images that a token must not see. The client is curl.
. "$(dirname "$0")/lib.sh"

SERVER=
case ${PLATTER_SIZE:-quick} in full) IDLE=10000 ;; *) IDLE=2000 ;; esac
PORT=$((20000 + SRANDOM % 12000))
SOCKET=$STORE/serve.sock
LOAD=()
suite_cleanup() {
	touch "$WORK/enough"
	[ -z "$SERVER" ] || kill -9 "$SERVER" 2>/dev/null
	[ ${#LOAD[@]} = 0 ] || kill "${LOAD[@]}" 2>/dev/null
}

# origin ARGUMENT...: starts `platter serve` in the background, and waits until it answers on its socket; its process is
# SERVER
origin() {
	local tries=0
	"$PLATTER" --store "$STORE" serve --listen "unix:$SOCKET" "$@" >"$WORK/server.log" 2>&1 &
	SERVER=$!
	until curl -sf --unix-socket "$SOCKET" http://origin/healthz >/dev/null; do
		tries=$((tries + 1))
		if [ "$tries" -gt 600 ] || ! kill -0 "$SERVER" 2>/dev/null; then
			cat "$WORK/server.log"
			return 1
		fi
		sleep 0.05
	done
}
# here PATH [CURL-OPTION...]: sends a request through the unix socket
here() {
	local path=$1
	shift
	curl -sS -m 60 --unix-socket "$SOCKET" "http://origin$path" "$@"
}
# far TOKEN PATH [CURL-OPTION...]: sends a request over TLS with an access token
far() {
	local token=$1 path=$2
	shift 2
	curl -sS -m 60 --cacert "$STORE/serve-certificate.pem" -H "Authorization: Bearer $token" \
		"https://localhost:$PORT$path" "$@"
}
# status COMMAND...: the HTTP status of such a command's response
status() { "$@" -o /dev/null -w '%{http_code}'; }
# check_status STATUS NAME COMMAND...
check_status() {
	local wanted=$1 name=$2 got
	shift 2
	got=$("$@" -o "$LOG" -w '%{http_code}' || true)
	if [ "$got" = "$wanted" ]; then
		ok "$name"
	else
		echo "status $got, wanted $wanted" >>"$LOG"
		not_ok "$name"
	fi
}
# secret NAME ROLE PATTERN...: creates an access token and prints its secret
secret() {
	local name=$1 role=$2 patterns=() pattern
	shift 2
	for pattern in "$@"; do patterns+=(--images "$pattern"); done
	platter_json serve token add "$name" --role "$role" "${patterns[@]}" | jq -r .secret
}
bytes_of() { perl -e 'print pack("H*", join("", @ARGV))' -- "$@"; }
score_of() { platter_json show "$1" | jq -r .score; }
memory() { awk '/^VmRSS/ { print $2 }' "/proc/$SERVER/status"; }

random $((4 << 20)) ours >"$WORK/ours"
random $((4 << 20)) theirs >"$WORK/theirs"
platter init
# block_ids: the ids of all data blocks in the footers of packs (docs/formats/pack.md)
block_ids() {
	find "$STORE/packs" -name '*.pack' -exec perl -e '
		local $/; for my $file (@ARGV) { open F, "<:raw", $file; $_ = <F>;
		my ($footer, $frames) = unpack("x8 Q< x8 V", substr($_, -64)); my $id = $footer + 16 + 24 * $frames;
		for my $frame (0 .. $frames - 1) {
		my ($blocks, $kind) = unpack("x16 V C", substr($_, $footer + 16 + 24 * $frame, 24));
		for my $n (1 .. $blocks) { print unpack("H*", substr($_, $id, 32)), "\n" if $kind == 1; $id += 32 } } }' {} + | sort -u
}
platter capture --raw "$WORK/ours" lab/ours >/dev/null
block_ids >"$WORK/our-ids"
platter capture --raw "$WORK/theirs" other/theirs >/dev/null
block_ids | comm -13 "$WORK/our-ids" - >"$WORK/their-ids"
OURS=$(score_of lab/ours)
THEIRS=$(score_of other/theirs)
mapfile -t our_blocks < <(head -32 "$WORK/our-ids")
mapfile -t their_blocks < <(head -32 "$WORK/their-ids")
check "the ids of both images' blocks are found" test "${#our_blocks[@]}" = 32 -a "${#their_blocks[@]}" = 32

# Authentication.
check "an origin starts" origin --listen "[::1]:$PORT" --listen "127.0.0.1:$PORT"
check "only its owner may open its socket" test "$(stat -c %a "$SOCKET")" = 600
check "its key is private" test "$(stat -c %a "$STORE/serve-key.pem")" = 600
fingerprint=$(openssl x509 -in "$STORE/serve-certificate.pem" -outform DER | sha256sum | cut -d' ' -f1)
check "it prints its fingerprint" grep -q "^fingerprint $fingerprint$" "$WORK/server.log"
check_exit "$EXIT_REFUSED" "a second origin at the same socket is refused" platter serve
check_exit "$EXIT_USAGE" "an invalid address is refused" platter serve --listen localhost
check_exit "$EXIT_USAGE" "a token with an invalid pattern is refused" platter serve token add x --role read --images 'lab*'
check "TCP without TLS gets no response" sh -c '! curl -s -m 5 http://127.0.0.1:'"$PORT"'/healthz'
declare -A TOKEN
for role in read write admin; do
	TOKEN[$role-lab]=$(secret "$role of lab" "$role" 'lab/*')
	TOKEN[$role-all]=$(secret "$role of all" "$role" '*')
done
check "no secret is stored" sh -c '! grep -rF "${2#platter-}" "$1"' - "$STORE/access-tokens.json" "${TOKEN[read-all]}"
check_status 401 "no token" far '' /api/v1/images
check_status 401 "a wrong token" far "${TOKEN[read-all]%?}" /api/v1/images
random 100000 body >"$WORK/body"
check_status 401 "no token, with a large body that is read so that the client sees the response" far '' /api/v1/frames --data-binary "@$WORK/body"
check_status 401 "a password instead of a token" curl -sS --cacert "$STORE/serve-certificate.pem" -u me:secret "https://localhost:$PORT/api/v1/images"
check_status 200 "health needs no token" far '' /healthz

# The requests are for missing objects or change nothing, so they do not influence each other.
table='
GET     /metrics                              -                                       403 403 403 200 200 200
GET     /api/v1/openapi.json                  -                                       200 200 200 200 200 200
GET     /api/v1/store                         -                                       200 200 200 200 200 200
GET     /api/v1/images                        -                                       200 200 200 200 200 200
GET     /api/v1/versions?image=lab/ours       -                                       200 200 200 200 200 200
GET     /api/v1/versions?image=other/theirs   -                                       404 404 404 200 200 200
GET     /api/v1/resolve?name=lab/ours@1       -                                       200 200 200 200 200 200
GET     /api/v1/resolve?name=other/theirs     -                                       404 404 404 200 200 200
GET     /api/v1/resolve?name=OURS             -                                       200 200 200 200 200 200
GET     /api/v1/resolve?name=THEIRS           -                                       404 404 404 200 200 200
POST    /api/v1/frames                        x                                       400 400 400 400 400 400
GET     /api/v1/nodes                         -                                       403 403 403 200 200 200
POST    /api/v1/nodes                         {}                                      400 400 400 400 400 400
GET     /api/v1/edit-locks                   -                                       200 200 200 200 200 200
POST    /api/v1/edit-locks                   {"image":"lab/no","holder":"me"}        403 404 404 403 404 404
POST    /api/v1/edit-locks                   {"image":"other/theirs","holder":""}    403 404 404 403 409 409
DELETE  /api/v1/edit-locks/lab%2Fours/9      -                                       403 404 404 403 404 404
DELETE  /api/v1/edit-locks/other%2Ftheirs/9  -                                       403 404 404 403 404 404
POST    /api/v1/uploads?image=other/x         -                                       403 403 403 403 201 201
POST    /api/v1/uploads/no/need               -                                       403 404 404 403 404 404
POST    /api/v1/uploads/no/frames             -                                       403 404 404 403 404 404
POST    /api/v1/uploads/no/publish            {}                                      403 400 400 403 400 400
DELETE  /api/v1/uploads/no                    -                                       403 404 404 403 404 404
POST    /api/v1/clone                         {"from":"lab/ours","to":"lab/ours"}     403 409 409 403 409 409
POST    /api/v1/clone                         {"from":"other/theirs","to":"other/x"}  403 404 404 403 200 409
POST    /api/v1/forget                        {"image":"lab/no"}                      403 403 404 403 403 404
POST    /api/v1/forget                        {"image":"other/theirs","number":9}     403 403 404 403 403 404
POST    /api/v1/rename                        {"from":"lab/no","to":"lab/x"}          403 403 404 403 403 404
POST    /api/v1/clone                         {"from":"lab/ours","to":"other/theirs"} 403 403 403 403 409 409
POST    /api/v1/rename                        {"from":"lab/ours","to":"lab/ours/x"}   403 403 409 403 403 409
GET     /api/v1/tokens                        -                                       403 403 403 403 403 200
POST    /api/v1/tokens                        {}                                      403 403 403 403 403 400
DELETE  /api/v1/tokens/no                     -                                       403 403 403 403 403 404
GET     /api/v1/growth                        -                                       200 200 200 200 200 200
GET     /api/v1/disks                         -                                       200 200 200 200 200 200
GET     /api/v1/casts                         -                                       200 200 200 200 200 200
POST    /api/v1/casts/no                      {}                                      403 403 400 403 403 400
GET     /                                     -                                       200 200 200 200 200 200
'
asked=0
wrong=()
while read -r method path body lab_read lab_write lab_admin all_read all_write all_admin; do
	[ -n "$method" ] || continue
	path=${path/OURS/$OURS}
	path=${path/THEIRS/$THEIRS}
	[ "$body" != - ] || body=
	for who in read-lab:"$lab_read" write-lab:"$lab_write" admin-lab:"$lab_admin" \
		read-all:"$all_read" write-all:"$all_write" admin-all:"$all_admin"; do
		got=$(status far "${TOKEN[${who%:*}]}" "$path" -X "$method" --data-binary "$body")
		asked=$((asked + 1))
		[ "$got" = "${who#*:}" ] || wrong+=("$method $path as ${who%:*}: $got")
	done
done <<<"$table"
printf '%s\n' "${wrong[@]}" >"$LOG"
if [ ${#wrong[@]} = 0 ]; then ok "every role and pattern at every endpoint ($asked requests)"; else not_ok "every role and pattern at every endpoint"; fi
check "hidden images are not listed" test "$(far "${TOKEN[admin-lab]}" /api/v1/images | jq -r '.[].image' | sort -u | grep -vc ^lab/)" = 0
removed=$(platter_json serve token list | jq -r 'select(.name == "read of lab").id')
platter serve token remove "$removed" >/dev/null
check_status 401 "a removed token is invalid at once" far "${TOKEN[read-lab]}" /api/v1/images
TOKEN[read-lab]=$(secret "read of lab" read 'lab/*')

# Frames.
# frames_of TOKEN SCORE KIND ID...: requests frames, to $WORK/frames
frames_of() {
	local token=$1 score=$2 kind=$3
	shift 3
	bytes_of "$score" "0$kind" 00 "$@" | far "$token" /api/v1/frames --data-binary @- -o "$WORK/frames" -w '%{http_code}'
}
# holds ID: whether a frame of the stream lists it; ids that were not found come after the last frame
holds() { perl -e 'local $/; open F, "<", $ARGV[0]; $_ = <F>; exit(index($_, pack("H*", $ARGV[1])) < 0)' "$WORK/frames" "$1"; }
not_found() { perl -e 'local $/; open F, "<", $ARGV[0]; $_ = <F>; my $at = 8; while ($at < length) { my ($t, $l) = unpack("Cx3V", substr($_, $at)); if ($t == 2) { print $l / 32; exit } $at += 8 + $l } exit 1' "$WORK/frames"; }
check "the frames of a whole image are sent" test "$(frames_of "${TOKEN[read-lab]}" "$OURS" 1 "${our_blocks[@]}")" = 200
check "with all blocks found" test "$(not_found)" = 0
check "including the requested ones" holds "${our_blocks[0]}"
check "pages are sent" test "$(frames_of "${TOKEN[read-lab]}" "$OURS" 2 "$OURS")" = 200
check "including the root" test "$(not_found)" = 0
check "a hidden recipe is missing" test "$(frames_of "${TOKEN[read-lab]}" "$THEIRS" 1 "${their_blocks[@]}")" = 404
check "hidden blocks are not found through a readable recipe" \
	test "$(frames_of "${TOKEN[read-lab]}" "$OURS" 1 "${their_blocks[@]}")$(not_found)" = 20032
check "and no frame is sent" test "$(stat -c %s "$WORK/frames")" = $((8 + 8 + 32 * 32))
check "an unrestricted token gets them" test "$(frames_of "${TOKEN[read-all]}" "$OURS" 1 "${their_blocks[@]}")$(not_found)" = 2000
upload=$(far "${TOKEN[write-lab]}" /api/v1/uploads -X POST | jq -r .id)
bytes_of "${our_blocks[0]}" "${their_blocks[0]}" | far "${TOKEN[write-lab]}" "/api/v1/uploads/$upload/need" --data-binary @- -o "$WORK/need"
check "an upload need not send readable blocks, but has to send hidden ones" test "$(od -An -tu1 "$WORK/need" | tr -d ' ')" = 2
check_status 404 "an upload of another token is missing" far "${TOKEN[write-all]}" "/api/v1/uploads/$upload" -X DELETE
check_status 204 "an own upload can be ended" far "${TOKEN[write-lab]}" "/api/v1/uploads/$upload" -X DELETE

# Abandoned uploads: their data takes space once, up to a limit, and the sender's next upload reuses it.
mapfile -t all_their_blocks <"$WORK/their-ids"
frames_of "${TOKEN[read-all]}" "$THEIRS" 1 "${all_their_blocks[@]}" >/dev/null
mv "$WORK/frames" "$WORK/stream"
pack_bytes() { du -sb "$STORE/packs" | cut -f1; }
abandon() {
	local upload
	upload=$(far "${TOKEN[write-lab]}" /api/v1/uploads -X POST | jq -r .id)
	far "${TOKEN[write-lab]}" "/api/v1/uploads/$upload/frames" -f --data-binary "@$WORK/stream" -o /dev/null
	[ "${1:-}" != -d ] || far "${TOKEN[write-lab]}" "/api/v1/uploads/$upload" -X DELETE
}
before=$(pack_bytes)
for _ in $(seq 20); do abandon -d; done
grown=$(($(pack_bytes) - before))
check "twenty abandoned uploads take about as much space as one ($grown bytes)" test "$grown" -lt $((2 * $(stat -c %s "$WORK/stream")))
check "the store is sound" platter check --read-data
bytes_of "${their_blocks[@]}" >"$WORK/ids"
upload=$(far "${TOKEN[write-lab]}" /api/v1/uploads -X POST | jq -r .id)
far "${TOKEN[write-lab]}" "/api/v1/uploads/$upload/need" --data-binary "@$WORK/ids" -o "$WORK/need"
check "its sender need not send the data again" test "$(od -An -tx1 "$WORK/need" | tr -d ' \n')" = 00000000
far "${TOKEN[write-lab]}" "/api/v1/uploads/$upload" -X DELETE
stop TERM
check "an origin with a limit for uploads starts" origin --listen "127.0.0.1:$PORT" --upload-limit 10M
random $((16 << 20)) large >"$WORK/large"
lab_platter() { PLATTER_TOKEN=${TOKEN[write-lab]} "$PLATTER" --server "https://127.0.0.1:$PORT" --fingerprint "$fingerprint" --quiet "$@"; }
sent_bytes() { here /metrics | awk '$1 == "platter_upload_bytes_total" { print $2 }'; }
for _ in 1 2 3; do
	check_exit "$EXIT_REFUSED" "a name that the token does not cover is refused" lab_platter capture --raw "$WORK/large" labs/typo
done
check_said "with the reason, at once" 'this access token does not cover labs/typo'
check "nothing was sent" test "$(sent_bytes)" = 0
check_exit "$EXIT_REFUSED" "an upload beyond the limit is refused" lab_platter capture --raw "$WORK/large" lab/large
check_said "with the reason" 'unfinished uploads of this access token hold .* and 10000000 are allowed'
before=$(sent_bytes)
check "a capture reuses data of the ended upload" lab_platter capture --raw "$WORK/theirs" lab/small
sent=$(($(sent_bytes) - before))
check "and sends hardly anything ($sent bytes)" test "$sent" -lt 1000000
lab_platter export lab/small "$WORK/exported" >"$LOG" 2>&1 || true
check "the version has the right bytes" cmp "$WORK/theirs" "$WORK/exported"
stop TERM
# A client that is killed during an upload: the same token can continue once the origin has noticed the closed
# connection.
check "an origin starts without a limit" origin --listen "127.0.0.1:$PORT"
# Large enough that no machine sends all of it before it is killed.
killed_bytes=$((288 << 20))
random "$killed_bytes" killed >"$WORK/killed"
before=$(sent_bytes)
PLATTER_TOKEN=${TOKEN[write-lab]} "$PLATTER" --server "https://127.0.0.1:$PORT" --fingerprint "$fingerprint" --quiet \
	capture --raw "$WORK/killed" lab/killed >/dev/null 2>&1 &
client=$!
for _ in $(seq 3000); do
	[ $(($(sent_bytes) - before)) -lt 30000000 ] || break
	kill -0 "$client" 2>/dev/null || break
	sleep 0.01
done
kill -KILL "$client" 2>/dev/null || true
wait "$client" 2>/dev/null || true
sleep 2.5
first=$(($(sent_bytes) - before))
check "an upload is killed after $first bytes" test "$first" -ge 30000000 -a "$first" -lt "$killed_bytes"
check_exit "$EXIT_MISSING" "and its version does not exist" lab_platter show lab/killed
before=$(sent_bytes)
check "the capture is repeated" lab_platter capture --raw "$WORK/killed" lab/killed
second=$(($(sent_bytes) - before))
check "and sends only the rest ($second bytes)" test $((first + second)) -lt $((killed_bytes + 9000000))
rm -f "$WORK/exported"
lab_platter export lab/killed "$WORK/exported" >"$LOG" 2>&1 || true
check "the version has the right bytes" cmp "$WORK/killed" "$WORK/exported"
rm -f "$WORK/killed" "$WORK/exported"
stop TERM
check "an origin starts" origin --listen "[::1]:$PORT" --listen "127.0.0.1:$PORT"

# Bodies.
head -c $((8 * 1024 * 1024 + 1)) /dev/zero >"$WORK/long"
check_status 413 "a request that is too long is refused" far "${TOKEN[read-all]}" /api/v1/frames --data-binary "@$WORK/long"
check_status 413 "also without a stated length" far "${TOKEN[read-all]}" /api/v1/frames -H 'Transfer-Encoding: chunked' --data-binary "@$WORK/long"
check_status 400 "a request with half an id is refused" here /api/v1/frames --data-binary "$(printf 'x%.0s' $(seq 49))"
check_status 400 "invalid JSON is refused" here /api/v1/forget --data-binary '{"image":'
for n in $(seq 60); do echo "X-$n: $(head -c 8000 /dev/zero | tr '\0' x)"; done >"$WORK/headers"
check_status 431 "a head that is too long is refused" here /healthz -H "@$WORK/headers"
# cut BYTES: sends a request that ends after this many bytes
cut_request() { perl -MIO::Socket::UNIX -e '
	my $s = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die; $s->autoflush(1);
	print $s "POST /api/v1/frames HTTP/1.1\r\nHost: o\r\nContent-Length: 66\r\n\r\n" . ("x" x $ARGV[1]); close $s' "$SOCKET" "$1"; }
for n in 0 1 34 65; do cut_request "$n"; done
check_status 200 "truncated requests disturb nobody" here /api/v1/images
# Clients that stop sending or receiving, while others are served.
perl -MIO::Socket::UNIX -e '
	my @s; for my $n (1 .. 64) { my $s = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die; $s->autoflush(1);
	print $s "POST /api/v1/frames HTTP/1.1\r\nHost: o\r\nContent-Length: 66\r\n\r\nx" if $n % 2;
	print $s "POST /api/v1/frames HTTP/1.1\r\nHost: o\r\nContent-Length: 66\r\n\r\n" . pack("H*", $ARGV[1]) . "\1\0" . pack("H*", $ARGV[2]) unless $n % 2;
	push @s, $s } sleep 300' "$SOCKET" "$OURS" "${our_blocks[0]}" &
LOAD+=($!)
sleep 0.5
check_status 200 "slow clients delay nobody" here /api/v1/images
check_status 408 "and get a timeout response" perl -MIO::Socket::UNIX -e '
	my $s = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die; $s->autoflush(1);
	print $s "POST /api/v1/frames HTTP/1.1\r\nHost: o\r\nContent-Length: 66\r\n\r\nx"; my $l = <$s>; print((split " ", $l)[1])' "$SOCKET"

# Idle connections: those with a token are kept, those without one lock nobody out.
# idle COUNT PORT TOKEN SOURCE...: opens COUNT connections from these addresses, until the end of the section
idle() {
	local count=$1 port=$2
	shift 2
	rm -f "$WORK/idle"
	(ulimit -n 20000 && exec "$TESTS/idle_clients.py" "127.0.0.1:$port" "$STORE/serve-certificate.pem" "$WORK/idle" "$count" "$@") &
	LOAD+=($!)
	for _ in $(seq 2400); do [ ! -e "$WORK/idle" ] || break; sleep 0.05; done
	[ -e "$WORK/idle" ]
}
# metric SOCKET NAME
metric() { curl -sS -m 5 --unix-socket "$1" http://origin/metrics | awk -v name="$2" '$1 == name { print $2 }'; }
before=$(memory)
check "$IDLE idle connections with a token are opened" idle "$IDLE" "$PORT" "${TOKEN[read-lab]}" 127.0.0.3 127.0.0.4 127.0.0.5
each=$((($(memory) - before) / IDLE))
check "each takes less than 64 KiB ($each KiB)" test "$each" -lt 64
# An origin that may open few files, and a client that opens three times as many silent connections.
(ulimit -n 1024 && exec "$PLATTER" --store "$STORE" serve --listen "unix:$WORK/small.sock" --listen "127.0.0.1:$((PORT + 1))") >"$WORK/small.log" 2>&1 &
SMALL=$!
LOAD+=("$SMALL")
for _ in $(seq 600); do [ ! -S "$WORK/small.sock" ] || break; sleep 0.05; done
check "3,000 connections without a token are opened" idle 3000 $((PORT + 1)) '' 127.0.0.1
small_far() { curl -sS -m 5 --cacert "$STORE/serve-certificate.pem" -H "Authorization: Bearer ${TOKEN[read-lab]}" "https://localhost:$((PORT + 1))/api/v1/images" -4 "$@"; }
small_here() { curl -sS -m 5 --unix-socket "$WORK/small.sock" http://origin/api/v1/images "$@"; }
check_status 200 "the unix socket is still served" small_here
check_status 200 "and a client with a token from another address" small_far --interface 127.0.0.2
check_status 200 "and a client with a token from the same address" small_far --interface 127.0.0.1
strangers() { metric "$WORK/small.sock" platter_http_connections_unauthenticated; }
check "few of them remain" test "$(strangers)" -le 46
check "older ones were displaced" test "$(metric "$WORK/small.sock" platter_http_connections_displaced_total)" -gt 0
for _ in $(seq 600); do [ "$(strangers)" != 0 ] || break; sleep 0.05; done
check "and soon none remain" test "$(strangers)" = 0 -a "$(metric "$WORK/small.sock" platter_http_connections_too_slow_total)" -gt 0
check "connections with a token are still open" test "$(metric "$SOCKET" platter_http_connections)" -ge "$IDLE"
check_status 200 "and other clients are served" far "${TOKEN[read-lab]}" /api/v1/images
kill "${LOAD[@]}" 2>/dev/null || true
wait "$SMALL" 2>/dev/null || true
LOAD=()

# Events.
here /api/v1/events -N -m 300 >"$WORK/events" 2>/dev/null &
LOAD+=($!)
for _ in $(seq 600); do ! grep -q listening "$WORK/events" || break; sleep 0.05; done
far "${TOKEN[read-lab]}" /api/v1/events -N -m 2 >"$WORK/of-lab" 2>/dev/null || true
here /api/v1/clone -d '{"from":"lab/ours","to":"lab/copy"}' >/dev/null
# The origin releases the store's lock soon after the last change.
for _ in $(seq 600); do ! platter clone other/theirs other/copy >/dev/null 2>&1 || break; sleep 0.1; done
for _ in $(seq 600); do ! grep -q other/copy "$WORK/events" || break; sleep 0.05; done
check "events report versions of the origin and of other processes" sh -c 'grep -q "\"lab/copy\"" "$1" && grep -q "\"other/copy\"" "$1"' - "$WORK/events"
last=$(grep -B2 '"lab/copy"' "$WORK/events" | sed -n 's/^id: //p')
timeout 2 curl -sN --unix-socket "$SOCKET" http://origin/api/v1/events -H "Last-Event-ID: $last" >"$WORK/resumed" || true
check "events continue where a client left off" sh -c 'grep -q "\"other/copy\"" "$1" && ! grep -q "\"lab/copy\"" "$1"' - "$WORK/resumed"
lab_last=$(sed -n 's/^id: //p' "$WORK/of-lab")
far "${TOKEN[read-lab]}" /api/v1/events -N -m 2 -H "Last-Event-ID: $lab_last" >"$WORK/resumed" 2>/dev/null || true
check "but not for hidden images" sh -c 'grep -q listening "$1" && grep -q "\"lab/copy\"" "$1" && ! grep -q other/ "$1"' - "$WORK/resumed"
far "${TOKEN[read-lab]}" /api/v1/events -N -m 2 -H "Last-Event-ID: $last" >"$WORK/resumed" 2>/dev/null || true
check "a number is no id for a token that does not read everything" sh -c 'grep -q reset "$1" && ! grep -q other/ "$1"' - "$WORK/resumed"
kill "${LOAD[@]}" 2>/dev/null || true
LOAD=()

# Other processes on the same store.
here /api/v1/uploads -X POST -o "$WORK/upload"
check_exit "$EXIT_FAILED" "while an upload is open, other processes cannot write" platter --retry-lock 1s clone lab/ours lab/other
here "/api/v1/uploads/$(jq -r .id "$WORK/upload")" -X DELETE
sleep 5
check "soon after it ended, they can" platter clone lab/ours lab/other
"$PLATTER" --store "$STORE" serve --listen "unix:$WORK/second.sock" >/dev/null 2>&1 &
LOAD+=($!)
for _ in $(seq 600); do [ ! -S "$WORK/second.sock" ] || break; sleep 0.05; done
here /api/v1/uploads -X POST -o "$WORK/upload"
second() {
	local path=$1
	shift
	curl -sS -m 60 --unix-socket "$WORK/second.sock" "http://origin$path" "$@"
}
check_status 200 "a second origin reads" second /api/v1/images
check "and waits to write" test "$(curl -s --unix-socket "$WORK/second.sock" http://origin/api/v1/uploads -X POST -o /dev/null -w '%{http_code}')" = 503
kill "${LOAD[@]}"
wait "${LOAD[@]}" 2>/dev/null || true
LOAD=()
check "it removes its socket" test ! -e "$WORK/second.sock"

# Restarts under load: every response is complete, and every end is graceful.
bytes_of "$OURS" 01 00 "${our_blocks[@]}" >"$WORK/request"
here /api/v1/frames --data-binary "@$WORK/request" -o "$WORK/wanted"
: >"$WORK/answers"
for n in 1 2 3 4; do
	(
		while [ ! -e "$WORK/enough" ]; do
			if curl -s -m 30 --unix-socket "$SOCKET" http://origin/api/v1/frames --data-binary "@$WORK/request" -o "$WORK/got.$n"; then
				cmp -s "$WORK/got.$n" "$WORK/wanted" && echo same >>"$WORK/answers" || echo other >>"$WORK/answers"
			fi
		done
	) &
	LOAD+=($!)
done
ended=0
for n in $(seq 10); do
	sleep "0.$((10 + $(number "restart $n" 30)))"
	kill -TERM "$SERVER"
	wait "$SERVER" && ended=$((ended + 1))
	origin --listen "127.0.0.1:$PORT" >"$LOG" 2>&1 || break
done
check "ten restarts under load end gracefully" test "$ended" = 10
for n in $(seq 10); do
	sleep "0.$((10 + $(number "kill $n" 30)))"
	kill -KILL "$SERVER"
	wait "$SERVER" 2>/dev/null || true
	origin --listen "127.0.0.1:$PORT" >"$LOG" 2>&1 || break
done
check "after ten kills, it starts despite the remaining socket" here /healthz
touch "$WORK/enough"
wait "${LOAD[@]}" 2>/dev/null || true
LOAD=()
check "all $(wc -l <"$WORK/answers") responses were complete" sh -c 'grep -q same "$1" && ! grep -q other "$1"' - "$WORK/answers"
check "the fingerprint is unchanged" grep -q "^fingerprint $fingerprint$" "$WORK/server.log"
check "the store is sound" platter check --read-data
stop TERM
check "the socket is removed at the end" test ! -e "$SOCKET"
finish
