#!/usr/bin/env bash
# tests/nbd.sh: NBD clients in difficult situations: TLS with valid and invalid certificates, a server that is killed
# with SIGKILL and restarted during writes and reads, many concurrent requests. The clients are QEMU's, which reconnects
# by itself, and libnbd's.
. "$(dirname "$0")/lib.sh"

SERVER=
KILLS=20
# Seconds that a client's request waits for a server that is down.
RECONNECT=60
PORT=$((20000 + SRANDOM % 12000))
suite_cleanup() {
	[ -z "$SERVER" ] || kill -9 "$SERVER" 2>/dev/null
	touch "$WORK/enough"
}

# serve ADDRESS ARGUMENT...: runs `attach` in the background, and waits until it is attached
serve() { start_server --nbd "$@"; }
SOCKET=$WORK/nbd.sock
uri() { echo "nbd+unix:///$1?socket=$SOCKET"; }
secure_uri() { echo "nbds+unix:///$1?socket=$SOCKET&tls-certificates=$2"; }

# certificates DIR: creates an authority with a server's certificate; DIR/client gets what one of its clients needs
certificates() {
	local name
	mkdir -p "$1/client"
	for name in ca server client; do
		openssl genpkey -quiet -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1/$name-key.pem"
	done
	openssl req -x509 -new -key "$1/ca-key.pem" -days 2 -subj "/CN=authority of ${1##*/}" -out "$1/ca-cert.pem"
	printf 'basicConstraints=CA:FALSE\nsubjectAltName=DNS:localhost,IP:127.0.0.1\n' >"$1/extensions"
	for name in server client; do
		openssl req -new -key "$1/$name-key.pem" -subj "/CN=$name" |
			openssl x509 -req -CA "$1/ca-cert.pem" -CAkey "$1/ca-key.pem" -CAcreateserial -days 2 \
				-extfile "$1/extensions" -out "$1/$name-cert.pem" 2>/dev/null
	done
	cp "$1/ca-cert.pem" "$1/client-cert.pem" "$1/client-key.pem" "$1/client/"
}

random $((32 << 20)) disk >"$WORK/disk"
platter init
platter capture "$WORK/disk" lab/disk >/dev/null
cp "$WORK/disk" "$WORK/copy"

# TLS.
certificates "$WORK/ours"
certificates "$WORK/theirs"
# A stranger trusts the server, but its certificate is from another authority.
cp "$WORK/ours/ca-cert.pem" "$WORK/theirs/client/ca-cert.pem"
attach_at() { "$PLATTER" --store "$STORE" attach lab/disk --nbd "$@"; }
check_exit "$EXIT_REFUSED" "without TLS, other machines are not served" attach_at "0.0.0.0:$PORT"
check_exit "$EXIT_MISSING" "a folder without certificates is refused" attach_at "$SOCKET" --tls-certificates "$WORK/mnt"
check "a version is served over TLS" serve "$SOCKET" --tls-certificates "$WORK/ours" lab/disk
check "nbdinfo lists it" nbdinfo "$(secure_uri lab/disk "$WORK/ours/client")"
check "nbdcopy copies it" nbdcopy "$(secure_uri lab/disk "$WORK/ours/client")" "$WORK/copied"
check "with the right bytes" cmp "$WORK/disk" "$WORK/copied"
check_exit 1 "a client without TLS is refused" nbdinfo "$(uri lab/disk)"
check_said "and the message names TLS" 'tls'
check_exit 1 "and gets no list of exports" nbdinfo --list "$(uri '')"
check_exit 1 "QEMU without TLS is refused" qemu-img info "$(uri lab/disk)"
check_exit 1 "a client of another authority is refused" nbdinfo "$(secure_uri lab/disk "$WORK/theirs/client")"
check "and the server logs it" grep -q "the client's certificate" "$WORK/server.log"
stop TERM
check "other machines are served over TLS" serve "0.0.0.0:$PORT" --tls-certificates "$WORK/ours" lab/disk
qemu_tls() {
	qemu-img "$1" --object "tls-creds-x509,id=tls,endpoint=client,verify-peer=on,dir=$2" --image-opts \
		"driver=nbd,host=127.0.0.1,port=$PORT,export=lab/disk,tls-creds=tls,tls-hostname=localhost"
}
check "qemu-img connects with a valid certificate" qemu_tls info "$WORK/ours/client"
check_exit 1 "but not with a stranger's certificate" qemu_tls info "$WORK/theirs/client"
stop TERM
check "verification of clients can be disabled" serve "$SOCKET" --tls-certificates "$WORK/ours" --tls-verify-peer=off lab/disk
check "then a stranger is served" nbdinfo "$(secure_uri lab/disk "$WORK/theirs/client")"
check_exit 1 "but not without TLS" nbdinfo "$(uri lab/disk)"
stop TERM

# Many concurrent requests, and QEMU's view of extents.
check "it is served for writing" serve "$SOCKET" --write lab/disk
check "qemu-img bench reads with 64 concurrent requests" qemu-img bench -f raw -c 20000 -d 64 -s 4k -S 68k "$(uri lab/disk)"
check "and with long requests" qemu-img bench -f raw -c 200 -d 16 -s 2M "$(uri lab/disk)"
check "it writes, with flushes" qemu-img bench -f raw -w -c 5000 -d 32 -s 8k -S 72k --pattern 0x5a --flush-interval 64 "$(uri lab/disk)"
qemu-img bench -f raw -w -c 5000 -d 32 -s 8k -S 72k --pattern 0x5a "$WORK/copy" >/dev/null
check "and the disk has its writes" qemu-img compare -f raw -F raw "$WORK/copy" "$(uri lab/disk)"
aio=()
for n in $(seq 0 15); do aio+=(-c "aio_write -P $((n + 1)) $((n * 100000)) 100000"); done
aio+=(-c aio_flush)
for n in $(seq 0 15); do aio+=(-c "aio_read -P $((n + 1)) $((n * 100000)) 100000"); done
aio+=(-c aio_flush -c 'write -z 20M 1M' -c 'discard 24M 1M' -c 'read -P 0 20M 1M' -c 'read -P 0 24M 1M')
check "qemu-io reads its writes with 16 concurrent requests" sh -c '! "$@" | grep -E "failed|rror"' - qemu-io -f raw "${aio[@]}" "$(uri lab/disk)"
for n in $(seq 0 15); do echo "write -P $((n + 1)) $((n * 100000)) 100000"; done |
	cat - <(echo 'write -z 20M 1M') <(echo 'write -z 24M 1M') | qemu-io -f raw "$WORK/copy" >/dev/null
check "and the disk has its writes" qemu-img compare -f raw -F raw "$WORK/copy" "$(uri lab/disk)"
# zeros FILE: first byte and length of each run of zeros, one per line; adjacent runs are joined
zeros() {
	jq -r '.[] | select(.zero) | "\(.start) \(.length)"' "$1" | awk '
		$1 == end { length_ += $2; end += $2; next }
		NR > 1 { print start, length_ } { start = $1; length_ = $2; end = $1 + $2 } END { if (NR) print start, length_ }'
}
qemu-img map --output=json -f raw "$(uri lab/disk)" >"$WORK/qemu-map.json"
nbdinfo --map --json "$(uri lab/disk)" | jq '[.[] | {start: .offset, length, zero: (.type == 3)}]' >"$WORK/nbd-map.json"
check "qemu-img map shows the zeros of base:allocation" cmp <(zeros "$WORK/qemu-map.json") <(zeros "$WORK/nbd-map.json")
check "which are the written zeros" sh -c 'grep -q "20971520" "$1" && grep -q 25165824 "$1"' - "$WORK/nbd-map.json"

# Killed and restarted. Each client writes every fourth block of 4 KiB, round after round, each time with another byte.
# It reads each eight acknowledged blocks before it continues, because a later round would hide a lost one.
CLIENTS=4
BLOCKS=512
# commands CLIENT: prints commands until there are enough
commands() {
	local client=$1 round group block where
	for round in $(seq 0 999); do
		for group in $(seq 0 8 $((BLOCKS - 1))); do
			[ ! -e "$WORK/enough" ] || return 0
			for command in write read; do
				for block in $(seq "$group" $((group + 7))); do
					where="$(((block * CLIENTS + client) * 4096)) 4096"
					echo "$command -P $((1 + (client * 61 + block * 7 + round * 13) % 255)) $where"
				done
			done
		done
	done
}
RECONNECTING="driver=nbd,server.type=unix,server.path=$SOCKET,reconnect-delay=$RECONNECT,open-timeout=$RECONNECT"
clients=()
for client in $(seq 0 $((CLIENTS - 1))); do
	commands "$client" | tee "$WORK/asked.$client" |
		qemu-io --image-opts "$RECONNECTING,export=lab/disk" >"$WORK/told.$client" 2>&1 &
	clients+=($!)
done
killed=0
for n in $(seq "$KILLS"); do
	sleep "0.$((10 + $(number "kill $n" 30)))"
	stop KILL
	serve "$SOCKET" --write lab/disk >"$LOG" 2>&1 || break
	killed=$((killed + 1))
done
check "the server is killed during writes and restarted $KILLS times" test "$killed" = "$KILLS"
touch "$WORK/enough"
# A client that never gets a reply would wait forever. The sleep ends with the watchdog, because readers of the output
# wait for both.
(
	trap 'kill $!' TERM
	sleep $((2 * RECONNECT)) &
	wait $! && kill "${clients[@]}"
) 2>/dev/null &
watch=$!
ended=0
for client in "${clients[@]}"; do wait "$client" && ended=$((ended + 1)); done
{ kill "$watch" && wait "$watch"; } 2>/dev/null || true
check "no client hangs" test "$ended" = "$CLIENTS"
asked=$(cat "$WORK"/asked.* | grep -c write)
check "all $asked writes were acknowledged" test "$asked" = "$(cat "$WORK"/told.* | grep -c 'wrote 4096/4096')"
check "none failed, and acknowledged writes were read after each kill" sh -c '! grep -iE "failed|error" "$@"' - "$WORK"/told.*
cat "$WORK"/asked.* | grep write | qemu-io -f raw "$WORK/copy" >/dev/null
check "and the disk has all writes" qemu-img compare -f raw -F raw "$WORK/copy" "$(uri lab/disk)"
check "it is published" platter publish lab/disk
stop TERM
platter discard lab/disk >/dev/null 2>&1 || true
platter export lab/disk "$WORK/published" >/dev/null
check "the version has every write" cmp "$WORK/copy" "$WORK/published"

# The same for reads: QEMU compares the disk repeatedly.
rm -f "$WORK/enough"
check "it is served again" serve "$SOCKET" lab/disk
(
	while [ ! -e "$WORK/enough" ]; do
		qemu-img compare --image-opts "driver=raw,file.filename=$WORK/copy" "$RECONNECTING,export=lab/disk" || exit 1
		echo >>"$WORK/compared"
	done
) >"$WORK/compare.log" 2>&1 &
reader=$!
killed=0
for n in $(seq "$KILLS"); do
	sleep "0.$((10 + $(number "kill reader $n" 30)))"
	stop KILL
	serve "$SOCKET" lab/disk >"$LOG" 2>&1 || break
	killed=$((killed + 1))
done
touch "$WORK/enough"
check "the server is killed during reads and restarted $KILLS times" test "$killed" = "$KILLS"
check "no read failed or was wrong" wait "$reader"
check "the whole disk was compared" test -s "$WORK/compared"
stop TERM
check "the store is sound" platter check --read-data
finish
