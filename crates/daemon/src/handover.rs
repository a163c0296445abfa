//! Replaces a running server without an interruption: the protocol between this server and its successor over the control socket.
//!
//! ```text
//!  successor                       running server
//!  TAKE_OVER ──────────────────▶
//!  ◀────────── addresses, sockets  continues to serve
//!  READY ──────────────────────▶
//!  ◀─────────────────────── YOURS  stops accepting, and finishes the requests of open connections
//!  accepts; requests that change the store wait
//!  ◀──────────────────── RELEASED  has parked its uploads and released the store's lock
//!  changes the store               exits when its last connection has ended
//! ```
//!
//! Until YOURS, any failure on either side leaves the running server unchanged. Afterwards, the sockets belong to the
//! successor. Connections that were opened in between wait in the sockets' queues, so none is refused. The two servers
//! never hold the store's lock at the same time.

use std::io::ErrorKind::{ConnectionRefused, NotFound};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use platter_image::{Error, ErrorKind, IoContext, Result};
use platter_transport::Parcel;

use crate::config::ListenAddress;
use crate::listen::{Client, Listener};
use crate::predecessor::Predecessor;
use crate::sockets::{CONTROL_SOCKET, Sockets};

const TAKE_OVER: &[u8] = b"take over";
const READY: &[u8] = b"ready";
const YOURS: &[u8] = b"yours";
const RELEASED: &[u8] = b"released";
/// Maximum length of a message in bytes.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Timeout for a reply of the other side.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// How long requests that change the store wait until the previous server has released the lock.
const RELEASE_TIME: Duration = Duration::from_secs(30);
/// How long the takeover is retried while the running server ends or is being replaced by another successor.
const ASK_TIME: Duration = Duration::from_secs(10);
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// The sockets of a server, until a successor takes them or the server ends.
pub(crate) type Held = Arc<Mutex<Option<Sockets>>>;

/// Waits until a successor has taken the sockets. Returns the connection to it.
pub(crate) async fn taken_over(control: Option<Listener>, addresses: Vec<String>, held: Held) -> UnixStream {
    let Some(control) = control else { return std::future::pending().await };
    loop {
        let Ok(Client::Unix(stream)) = control.accept().await else {
            tokio::time::sleep(ASK_AGAIN).await;
            continue;
        };
        let (addresses, held) = (addresses.clone(), Arc::clone(&held));
        let offered = tokio::task::spawn_blocking(move || offer(stream.into_std(), &addresses, &held)).await;
        if let Ok(Ok(stream)) = offered {
            return stream;
        }
        // The successor reports the error.
    }
}

fn offer(stream: std::io::Result<UnixStream>, addresses: &[String], held: &Held) -> Result<UnixStream> {
    let stream = stream.context(|| "talking to a successor".into())?;
    stream.set_nonblocking(false).context(|| "talking to a successor".into())?;
    limit(&stream, ANSWER_TIME)?;
    hear(&stream, TAKE_OVER)?;
    let parcels = held.lock().as_ref().map_or(Ok(Vec::new()), Sockets::to_parcels)?;
    let text = serde_json::to_vec(addresses).map_err(|error| Error::bug(error.to_string()))?;
    say(&stream, &text)?;
    parcels.iter().try_for_each(|parcel| parcel.send(&stream))?;
    hear(&stream, READY)?;
    // A server that ends takes the sockets under the same lock, so only one of the two happens.
    let mut held = held.lock();
    let sockets = held.take().ok_or_else(|| Error::transient("this server ends"))?;
    if let Err(error) = say(&stream, YOURS) {
        *held = Some(sockets);
        return Err(error);
    }
    sockets.leave();
    Ok(stream)
}

/// Tells the successor that the store's lock is released.
pub(crate) fn release_to(successor: &UnixStream) {
    // A successor that has ended needs no lock.
    let _ = say(successor, RELEASED);
}

/// What a server receives from its predecessor.
pub(crate) struct Inherited {
    pub(crate) sockets: Sockets,
    pub(crate) predecessor: Predecessor,
}

/// Takes over the sockets of the server that runs on this store; `None` when there is none.
///
/// # Errors
/// `Refused` when it listens at other addresses; `Transient` when it does not answer. The running server then continues.
pub(crate) fn take_over(dir: &Path, addresses: &[ListenAddress]) -> Result<Option<Inherited>> {
    let wanted: Vec<String> = addresses.iter().map(ListenAddress::place).collect();
    let until = Instant::now() + ASK_TIME;
    loop {
        match ask(dir, &wanted) {
            Err(error) if error.kind() == ErrorKind::Transient && Instant::now() < until => {
                thread::sleep(ASK_AGAIN);
            }
            asked => return asked.map_err(|error| error.within("replacing the running server")),
        }
    }
}

fn ask(dir: &Path, wanted: &[String]) -> Result<Option<Inherited>> {
    let control = dir.join(CONTROL_SOCKET);
    let stream = match UnixStream::connect(&control) {
        Err(error) if matches!(error.kind(), NotFound | ConnectionRefused) => return Ok(None),
        connected => connected.context(|| format!("connecting to {}", control.display()))?,
    };
    limit(&stream, ANSWER_TIME)?;
    say(&stream, TAKE_OVER)?;
    let text = Parcel::receive(&stream, MESSAGE_BYTES_MAX)?.bytes;
    let served: Vec<String> = serde_json::from_slice(&text).map_err(|error| {
        Error::corrupt(format!("the running server: {error}: another version of Platter?"))
    })?;
    if served != wanted {
        return Err(Error::refused(format!(
            "it listens at {}, and this one is to listen at {}: use the same addresses in the same order",
            served.join(", "),
            wanted.join(", ")
        )));
    }
    let parcels = (0..=served.len()).map(|_| Parcel::receive(&stream, MESSAGE_BYTES_MAX));
    let parcels = parcels.collect::<Result<_>>()?;
    say(&stream, READY)?;
    hear(&stream, YOURS)?;
    limit(&stream, RELEASE_TIME)?;
    Ok(Some(Inherited { sockets: Sockets::from_parcels(parcels)?, predecessor: Predecessor::new(stream) }))
}

fn limit(stream: &UnixStream, time: Duration) -> Result<()> {
    let limited = stream.set_read_timeout(Some(time)).and_then(|()| stream.set_write_timeout(Some(time)));
    limited.context(|| "limiting the time of a control socket".into())
}

fn say(stream: &UnixStream, message: &[u8]) -> Result<()> {
    Parcel { bytes: message.to_vec(), descriptors: Vec::new() }.send(stream)
}

/// # Errors
/// `Corrupt` when it is another message; as [`Parcel::receive`].
fn hear(stream: &UnixStream, message: &[u8]) -> Result<()> {
    match Parcel::receive(stream, MESSAGE_BYTES_MAX)?.bytes == message {
        true => Ok(()),
        false => Err(Error::corrupt("a control socket: another version of Platter?")),
    }
}
