//! Sends and receives many datagrams with one system call: segmentation offload (GSO) for sending, receive
//! offload (GRO) for receiving, and single sends where offload is refused.
//!
//! It owns the receive buffers. It must never drop datagrams that could be sent later: a full send buffer is
//! reported to the caller.

use std::cell::Cell;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use platter_image::{Error, IoContext, Result};
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use socket2::SockRef;

/// A buffer is large enough for the largest combined packet.
const BUFFER_BYTES: usize = 1 << 16;
/// An interface that is down, or has lost its address or routes, may return within this time, as when its driver is reset. Until
/// then, what cannot be sent counts as lost.
const LINK_LOSS_MAX: Duration = Duration::from_secs(10);

/// A non-blocking UDP socket that works in batches.
pub(crate) struct BatchSocket {
    pub(crate) socket: UdpSocket,
    state: UdpSocketState,
    buffers: Vec<u8>,
    metas: [RecvMeta; BATCH_SIZE],
    /// Since when nothing can be sent.
    link_lost_at: Cell<Option<Instant>>,
}

impl BatchSocket {
    /// Uses an opened socket.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn new(socket: UdpSocket) -> Result<Self> {
        let state = UdpSocketState::new(UdpSockRef::from(&socket))
            .context(|| "preparing a UDP socket for batches".into())?;
        Ok(Self {
            socket,
            state,
            buffers: vec![0; BUFFER_BYTES * BATCH_SIZE],
            metas: [RecvMeta::default(); BATCH_SIZE],
            link_lost_at: Cell::new(None),
        })
    }

    /// Sends datagrams of equal length (the last may be shorter), starting at byte `from`. Returns the offset
    /// that was reached; if it is less than the length, the send buffer is full.
    ///
    /// # Errors
    /// `Io` when the network cannot be used at all, or not for [`LINK_LOSS_MAX`].
    pub(crate) fn send(
        &self,
        to: SocketAddr,
        bytes: &[u8],
        segment_bytes: usize,
        from: usize,
    ) -> Result<usize> {
        let mut position = from;
        while position < bytes.len() {
            let datagrams = self.state.max_gso_segments().max(1);
            let end = (position + datagrams * segment_bytes).min(bytes.len());
            let contents = &bytes[position..end];
            let transmit = Transmit {
                destination: to,
                ecn: None,
                contents,
                segment_size: (contents.len() > segment_bytes).then_some(segment_bytes),
                src_ip: None,
            };
            match self.state.try_send(UdpSockRef::from(&self.socket), &transmit) {
                Ok(()) => {
                    self.link_lost_at.set(None);
                    position = end;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(position),
                // Offload was refused (the state now allows one segment): send the same bytes singly.
                Err(_) if contents.len() > segment_bytes && self.state.max_gso_segments() == 1 => {}
                // A temporary lack of buffers counts as packet loss; repair corrects it.
                Err(error) if is_momentary(&error) || self.may_return(&error) => position = end,
                Err(error) => {
                    return Err(Error::io(format!("sending {} bytes to {to}", contents.len()), error));
                }
            }
        }
        Ok(position)
    }

    /// Whether the link is lost, and may return.
    fn may_return(&self, error: &io::Error) -> bool {
        let lost_at = self.link_lost_at.get().unwrap_or_else(Instant::now);
        let may_return = is_link_loss(error) && lost_at.elapsed() < LINK_LOSS_MAX;
        self.link_lost_at.set(may_return.then_some(lost_at));
        may_return
    }

    /// Passes all datagrams of one system call to `handle`. Returns their number; 0 if none was waiting.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn receive(&mut self, mut handle: impl FnMut(&[u8])) -> Result<usize> {
        let mut slices: Vec<IoSliceMut<'_>> =
            self.buffers.chunks_exact_mut(BUFFER_BYTES).map(IoSliceMut::new).collect();
        let received = match self.state.recv(UdpSockRef::from(&self.socket), &mut slices, &mut self.metas) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock || is_momentary(&error) => return Ok(0),
            Err(error) => return Err(Error::io("receiving datagrams", error)),
        };
        let mut count = 0;
        for (meta, buffer) in self.metas.iter().zip(self.buffers.chunks_exact(BUFFER_BYTES)).take(received) {
            for datagram in buffer[..meta.len.min(BUFFER_BYTES)].chunks(meta.stride.max(1)) {
                handle(datagram);
                count += 1;
            }
        }
        Ok(count)
    }

    /// The local address of the socket.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn local_address(&self) -> Result<SocketAddr> {
        let address = SockRef::from(&self.socket)
            .local_addr()
            .context(|| "reading the address of a UDP socket".into())?;
        address.as_socket().ok_or_else(|| Error::bug("a UDP socket has no address"))
    }
}

/// Temporary errors: those of a single datagram, or of an earlier one that was rejected (ICMP).
fn is_momentary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::Interrupted)
        || error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error())
        || error.raw_os_error() == Some(rustix::io::Errno::PERM.raw_os_error())
}

/// Errors of an interface that is down, or has no address or route now.
fn is_link_loss(error: &io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::NETDOWN, Errno::NETUNREACH, Errno::HOSTUNREACH, Errno::ADDRNOTAVAIL, Errno::NODEV]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
