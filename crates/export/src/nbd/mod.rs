//! An NBD server: any number of disks over unix or TCP sockets, to any number of clients at once.
//!
//! A client is a connection, and a connection is a thread that negotiates ([`Negotiation`], pure) and then reads
//! requests out of a large buffer. It executes a request itself as long as the disk answers at once: then nothing is
//! handed over, and the replies to all requests in the buffer go out in one call. Where the disk has to wait (a block
//! that is fetched, a flush), requests go to the workers of that disk, and a second thread of the connection
//! writes what they answer.
//!
//! ```text
//!  client ──▶ reader ──────────── executes, writes ────────────▶ client
//!               └──▶ queue ──▶ worker ──▶ outbox ──▶ writer ──▶ client
//! ```
//!
//! Why one client cannot stop another: workers never touch a socket. Only the two threads of a connection do, and
//! they hold nothing that others need. A client that does not read fills its own outbox, then its own budget of
//! requests in flight, and then its reader waits; after [`NbdOptions::stall_time`] it is disconnected.
//!
//! All clients together have [`NbdOptions::bytes_in_flight_max`] bytes, of which each may have a part of what is free.
//! A disk that does not answer keeps its own workers and the clients that wait for it, and at the end those are left behind.
//!
//! With [`NbdOptions::tls`] a client must ask for TLS before anything else; the threads are the same, and each encrypts
//! what it writes and decrypts what it reads.
//!
//! When a pause is ordered, each session stops between two requests and can go on in another server, of this process or of
//! another one ([`NbdState`]). Keys of TLS do not move: such a client is disconnected, and connects again.
//!
//! A request that has its reply has taken effect on the device, which all connections share. So a flush on any
//! connection covers it, and several connections of one client are one disk.

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
