//! What a person says about an origin, and the limits that nobody says anything about.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use platter_api::ListedDisk;
use platter_image::{Error, Result};
use platter_store::{Store, StorePlace};
use platter_transport::TlsFiles;

/// Most connections of all unix sockets; more are told 503. An idle one costs about 20 KiB.
pub(crate) const UNIX_CONNECTIONS_MAX: usize = 4096;
/// Unix connections above that which are told so; the rest are closed without a word.
pub(crate) const TURNED_AWAY_MAX: usize = 64;
/// Longest time in which a turned away client takes its answer.
pub(crate) const TURNED_AWAY_TIME_MAX: Duration = Duration::from_secs(5);
/// Most TCP connections that have shown a valid access token, and of these from one address (IPv6: one /64): a lab behind one
/// address has hundreds of machines with several connections each. More are told 503. An idle one costs about 40 KiB.
pub(crate) const CONNECTIONS_MAX: usize = 16_384;
pub(crate) const CONNECTIONS_OF_ADDRESS_MAX: usize = 4096;
/// Most TCP connections that have not, and of these from one address. Another one displaces the oldest of the address that
/// has the most.
pub(crate) const STRANGERS_MAX: usize = 2048;
pub(crate) const STRANGERS_OF_ADDRESS_MAX: usize = 256;
/// A TCP connection that has not shown a valid token by then ends; the TLS handshake is in that time.
pub(crate) const STRANGER_TIME_MAX: Duration = Duration::from_secs(10);
/// Files that are open besides connections.
pub(crate) const OTHER_FILES: u64 = 4096;
/// Threads that look access tokens up: nobody who has one waits for the store to be asked.
pub(crate) const ACCESS_THREADS: usize = 2;
/// Longest wait for the next request's head, the time between requests included.
pub(crate) const HEAD_TIME_MAX: Duration = Duration::from_secs(60);
/// Most bytes of a request's head, and of what is read ahead of a body.
pub(crate) const HEAD_LENGTH_MAX: usize = 64 << 10;
/// Longest pause inside a request's body.
pub(crate) const BODY_PAUSE_MAX: Duration = Duration::from_secs(20);
/// Longest time a body may take in all: 8 MiB at 560 kbit/s.
pub(crate) const BODY_TIME_MAX: Duration = Duration::from_secs(120);
/// Most bytes, and longest time, in which a body that is too long is taken and thrown away, so that its sender hears why.
pub(crate) const DISCARDED_LENGTH_MAX: usize = 32 << 20;
pub(crate) const DISCARDED_TIME_MAX: Duration = Duration::from_secs(5);
/// A client that takes not one byte of an answer in that time is disconnected.
pub(crate) const SEND_PAUSE_MAX: Duration = Duration::from_secs(60);
/// Most KiB of bodies held at once.
pub(crate) const BODIES_KIB_MAX: usize = 128 << 10;
/// Most bytes of a JSON body.
pub(crate) const JSON_LENGTH_MAX: usize = 128 << 10;

/// Threads that the store is asked on.
pub(crate) const STORE_THREADS: usize = 16;
/// Requests that may wait for one; more are told 503.
pub(crate) const WAITING_MAX: usize = 4096;
/// Bytes of frames read from the store at a time for one answer.
pub(crate) const ANSWER_BATCH: usize = 512 << 10;
/// Bytes of ids that are kept of recipes, to tell what a token may read.
pub(crate) const ID_SETS_BYTES_MAX: usize = 256 << 20;
/// Newest versions whose blocks a token that does not read everything is told not to send again.
pub(crate) const KNOWN_VERSIONS_MAX: usize = 64;

/// Most uploads at once, and of one token.
pub(crate) const UPLOADS_MAX: usize = 64;
pub(crate) const UPLOADS_OF_ONE_MAX: usize = 8;
/// Most bytes that the unfinished uploads of one token hold, if nothing else is said: a few large disks.
pub const UPLOAD_LIMIT_DEFAULT: u64 = 1 << 40;
/// What an upload left is kept for so long, for the next one of the same token.
pub(crate) const UNFINISHED_KEPT: Duration = Duration::from_secs(3 * 86_400);
/// Most packs that uploads of one token left: as many as the largest uploads leave within the limit. The oldest are discarded.
pub(crate) const UNFINISHED_PACKS_MAX: usize = 4096;
/// How often it is looked for what to discard.
pub(crate) const DISCARD_PAUSE: Duration = Duration::from_secs(60);
/// An upload that was not touched for so long is ended when its token begins another one: its client was cut off.
pub(crate) const UPLOAD_STALE: Duration = Duration::from_secs(20);
/// The same when all connections have ended that it was touched over.
pub(crate) const UPLOAD_LEFT: Duration = Duration::from_secs(2);
/// An upload that nobody touches for so long ends.
pub(crate) const UPLOAD_IDLE_MAX: Duration = Duration::from_secs(600);
/// Most ids of blocks that are remembered as sent in one upload of a token that does not read everything: 2 TiB of data.
pub(crate) const SENT_IDS_MAX: usize = 32 << 20;
/// Most blocks that one upload remembers of what earlier ones left: 1 TiB of files' blocks. The packs that were left last come
/// first; the others wait for the next upload.
pub(crate) const LEFTOVER_IDS_MAX: usize = 16 << 20;
/// The store's lock is given back when nobody has changed anything for so long.
pub(crate) const WRITER_IDLE_MAX: Duration = Duration::from_secs(3);

/// Events that can be asked for again.
pub(crate) const EVENTS_KEPT: usize = 10_000;
/// How often it is looked whether the catalog has changed.
pub(crate) const WATCH_PAUSE: Duration = Duration::from_secs(1);
/// A stream of events says something at least so often.
pub(crate) const EVENTS_PAUSE: Duration = Duration::from_secs(15);

/// Most casts that are remembered at once.
pub(crate) const CASTS_MAX: usize = 64;
/// A cast is remembered for so long after its sender was heard.
pub(crate) const CAST_KEPT: Duration = Duration::from_secs(600);
/// Most receivers of a cast that are told one by one, and most bytes of a text.
pub(crate) const CAST_RECEIVERS_MAX: usize = 128;
pub(crate) const CAST_TEXT_LENGTH_MAX: usize = 255;
/// Most points in which the growth of a store is told.
pub(crate) const GROWTH_POINTS_MAX: usize = 1000;
/// What is known of live disks is not asked for again so soon.
pub(crate) const DISKS_AGE_MAX: Duration = Duration::from_secs(2);

/// How long requests under way may take after the origin was told to end.
pub(crate) const END_TIME_MAX: Duration = Duration::from_secs(20);

/// Where clients come in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// A unix socket; who may open it may do everything.
    Unix(PathBuf),
    /// A TCP address, always with TLS and access tokens.
    Tcp(SocketAddr),
}

impl FromStr for ListenAddress {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text.strip_prefix("unix:") {
            Some("") => Err(Error::refused("unix: needs the path of a socket behind it")),
            Some(path) => Ok(Self::Unix(path.into())),
            None => text.parse().map(Self::Tcp).map_err(|_| {
                Error::refused(format!(
                    "{text:?}: listen at unix:PATH, or at ADDRESS:PORT such as 0.0.0.0:7440"
                ))
            }),
        }
    }
}

/// Lists the live disks of a store on this machine. Given by the caller: the origin does not know the processes that serve
/// disks.
pub type ListDisks = Arc<dyn Fn(&Store) -> Result<Vec<ListedDisk>> + Send + Sync>;

/// What to serve, and where.
#[derive(Clone)]
pub struct ServeOptions {
    /// The store.
    pub store: StorePlace,
    /// Where; `serve.sock` in the store's directory when it is empty.
    pub listen: Vec<ListenAddress>,
    /// What to show over TLS; a certificate of our own, made at the first start, when it is `None`.
    pub tls: Option<TlsFiles>,
    /// Most bytes that the unfinished uploads of one access token hold.
    pub upload_limit: u64,
    /// What version records of clones say they were made by, such as `platter 0.1.0`.
    pub tool_version: String,
    /// For `GET /api/v1/disks`.
    pub list_disks: ListDisks,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let parse = |text: &str| text.parse::<ListenAddress>();
        assert_eq!(parse("unix:/run/x").unwrap(), ListenAddress::Unix("/run/x".into()));
        assert_eq!(parse("[::1]:80").unwrap(), ListenAddress::Tcp("[::1]:80".parse().unwrap()));
        for bad in ["", "unix:", "80", "localhost", "/run/x", "tcp:1.2.3.4:5"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
