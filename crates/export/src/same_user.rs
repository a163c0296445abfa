//! Checks that a local TCP client belongs to the serving user or to root.
//!
//! A loopback port has no file mode: every local process can connect. The kernel's tables of TCP sockets
//! (`/proc/net/tcp`, `/proc/net/tcp6`) name the user of each, as seen in the network namespace of this process, which
//! is the one that the connection was made in.
//!
//! Why the answer is reliable: only a socket in the state ESTABLISHED counts, because the kernel assigns closed sockets
//! to user 0. Afterwards our own end must still be ESTABLISHED. Until then, the pair of addresses belongs to this
//! connection and cannot have been reused by another.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use platter_image::{Error, IoContext, Result};
use rustix::process::geteuid;
use socket2::Socket;

/// The tables of IPv4 and IPv6 sockets. An IPv4 connection can be in either.
const TABLES: [&str; 2] = ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"];
/// Maximum number of bytes that are read of a table: 150 per socket, for several hundred thousand sockets.
const TABLE_LENGTH_MAX: u64 = 64 << 20;
/// The number of the state ESTABLISHED.
const ESTABLISHED: u8 = 1;

/// Refuses a client of another user, or of an unknown one. Returns false if the client has already disconnected: a
/// program that only checks whether the port is open is not an error.
///
/// # Errors
/// `Refused`; `Io` when the tables cannot be read.
pub(crate) fn check(socket: &Socket) -> Result<bool> {
    let address = |address: std::io::Result<socket2::SockAddr>| {
        let address = address.context(|| "asking for a connection's addresses".into())?;
        address.as_socket().map(canonical).ok_or_else(|| Error::bug("a TCP connection without addresses"))
    };
    let (ours, theirs) = (address(socket.local_addr())?, address(socket.peer_addr())?);
    let user = user_of(theirs, ours)?;
    if user_of(ours, theirs)?.is_none() {
        return Ok(false);
    }
    let unknown = || Error::refused(format!("{theirs}: the user of this connection cannot be determined"));
    let (user, own) = (user.ok_or_else(unknown)?, geteuid().as_raw());
    if user == own || user == 0 {
        return Ok(true);
    }
    Err(Error::refused(format!(
        "{theirs}: user {user} connects, and only user {own} may: serve at a unix socket, or let every user of this \
         machine in with --insecure-loopback"
    )))
}

/// The user of the established socket with these addresses, if there is one.
fn user_of(local: SocketAddr, remote: SocketAddr) -> Result<Option<u32>> {
    for table in TABLES {
        let file = match File::open(table) {
            // A kernel without IPv6 has no such table.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            opened => opened.context(|| format!("opening {table}"))?,
        };
        for line in BufReader::new(file.take(TABLE_LENGTH_MAX)).lines().skip(1) {
            let line = line.context(|| format!("reading {table}"))?;
            let Some(row) = Row::parse(&line) else { continue };
            if (row.local, row.remote, row.state) == (local, remote, ESTABLISHED) {
                return Ok(Some(row.user));
            }
        }
    }
    Ok(None)
}

/// Converts an IPv4-mapped IPv6 address to the IPv4 address.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The needed fields of a line.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    local: SocketAddr,
    remote: SocketAddr,
    state: u8,
    user: u32,
}

impl Row {
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (local, remote) = (address(fields.next()?)?, address(fields.next()?)?);
        let state = u8::from_str_radix(fields.next()?, 16).ok()?;
        // Queues, timer, retransmissions.
        let user = fields.nth(3)?.parse().ok()?;
        Some(Self { local, remote, state, user })
    }
}

/// Parses an address in the form of the tables: words of 32 bits in the machine's own byte order, and the port, in hexadecimal.
fn address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| u32::from_str_radix(address.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (part, at) in bytes.chunks_exact_mut(4).zip((0..32).step_by(8)) {
                part.copy_from_slice(&word(at)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(canonical(SocketAddr::new(ip, port)))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn lines_of_the_tables() {
        let v4 = "  17: 0100007F:9C40 0200007F:0016 01 00000000:00000000 02:000AF3D2 00000000  1000        0 35 2 0 20 4 30 10 -1";
        let row = Row::parse(v4).unwrap();
        assert_eq!(
            (row.local, row.remote),
            ("127.0.0.1:40000".parse().unwrap(), "127.0.0.2:22".parse().unwrap())
        );
        assert_eq!((row.state, row.user), (1, 1000));
        let v6 = "  0: 00000000000000000000000001000000:1F90 0000000000000000FFFF00000100007F:0016 06 00000000:00000000 00:00000000 00000000 65534 0 1";
        let row = Row::parse(v6).unwrap();
        assert_eq!((row.local, row.remote), ("[::1]:8080".parse().unwrap(), "127.0.0.1:22".parse().unwrap()));
        assert_eq!((row.state, row.user), (6, 65534));
        for line in ["", "  sl  local_address rem_address   st", "0: 0100007F:9C40 01 01 01", &v4[..40]] {
            assert_eq!(Row::parse(line), None, "{line}");
        }
    }

    #[test]
    fn a_connection_of_this_process_is_found_and_a_closed_one_is_not() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(any) else { continue };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let taken = Socket::from(listener.accept().unwrap().0);
            assert!(check(&taken).unwrap());
            drop(client);
            assert!(!check(&taken).unwrap(), "{any}: a closed socket is nobody's");
        }
    }
}
