//! An NBD server: any number of disks over unix or TCP sockets, to any number of clients at once.
//!
//! Each client is one connection with a thread that negotiates ([`Negotiation`], pure) and then reads requests through
//! a large buffer. While the disk answers immediately, this thread executes requests itself: nothing is handed over,
//! and the replies to all buffered requests are sent in one call. When the disk has to wait (for a fetched block, a
//! flush), requests go to the workers of that disk, and a second thread of the connection writes their replies.
//!
//! ```text
//!  client ──▶ reader ──────────── executes, writes ────────────▶ client
//!               └──▶ queue ──▶ worker ──▶ outbox ──▶ writer ──▶ client
//! ```
//!
//! One client cannot block another, because workers never touch a socket. Only the two threads of a connection do, and
//! they hold nothing that others need. A client that does not read fills its own outbox, then its own budget of
//! requests in flight; then its reader waits, and after [`NbdOptions::stall_time`] it is disconnected.
//!
//! All clients share [`NbdOptions::bytes_in_flight_max`] bytes; each may use a part of the free ones. A disk that does
//! not answer blocks only its own workers and clients; at shutdown these are abandoned.
//!
//! With [`NbdOptions::tls`] a client must start TLS first; the threads are the same and encrypt and decrypt themselves.
//!
//! When a pause is ordered, each session stops between two requests and can go on in another server, of this process or of
//! another one ([`NbdState`]). Keys of TLS do not move: such a client is disconnected, and connects again.
//!
//! A request has taken effect on the shared device before its reply is sent. So a flush on any connection covers it,
//! and several connections of one client see one disk.

mod event;
mod execute;
mod extents;
mod failures;
mod handshake;
mod negotiate;
mod server;
mod session;
mod state;
mod stream;
mod tls;
pub mod wire;

pub use event::NbdEvent;
pub use negotiate::{Agreed, Negotiation, Step};
pub use server::{NbdOptions, NbdServer};
pub use state::NbdState;
pub use tls::NbdTls;
