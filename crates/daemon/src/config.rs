//! Options of an origin, and its fixed limits.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use platter_api::{AskForHoardCastRequest, CastFamily, CastOffer, CastStatus, HoardCastOffer, ListedDisk};
use platter_image::{Error, Result, Score};
use platter_records::{FormerAnswers, HoardSnapshot, Resolved, Standing, StoreId};
use platter_store::{Store, StorePlace};
use platter_transport::TlsFiles;

use crate::files::LookInside;

/// Most connections of all unix sockets; further ones get 503. An idle connection costs about 20 KiB.
pub(crate) const UNIX_CONNECTIONS_MAX: usize = 4096;
/// Most unix connections beyond that limit that wait for their 503 at the same time; further ones are closed without a
/// response.
pub(crate) const TURNED_AWAY_MAX: usize = 64;
/// Longest time for a rejected client to receive its response.
pub(crate) const TURNED_AWAY_TIME_MAX: Duration = Duration::from_secs(5);
/// Most TCP connections that have shown a valid access token, in all and from one address (IPv6: one /64). A lab behind
/// one address has hundreds of machines with several connections each. Further ones get 503. An idle connection costs
/// about 40 KiB.
pub(crate) const CONNECTIONS_MAX: usize = 16_384;
pub(crate) const CONNECTIONS_OF_ADDRESS_MAX: usize = 4096;
/// Most TCP connections that have not shown a valid token, in all and from one address. A further one displaces the
/// oldest connection of the address that has the most.
pub(crate) const STRANGERS_MAX: usize = 2048;
pub(crate) const STRANGERS_OF_ADDRESS_MAX: usize = 256;
/// Time in which a TCP connection must show a valid token, TLS handshake included.
pub(crate) const STRANGER_TIME_MAX: Duration = Duration::from_secs(10);
/// Open files other than connections.
pub(crate) const OTHER_FILES: u64 = 4096;
/// Threads for lookups of access tokens, so a client with a token does not wait for calls of the store.
pub(crate) const ACCESS_THREADS: usize = 2;
/// Longest wait for the next request's head, including the time between requests.
pub(crate) const HEAD_TIME_MAX: Duration = Duration::from_secs(60);
/// Most bytes of a request's head, and of a body's data that is read ahead.
pub(crate) const HEAD_LENGTH_MAX: usize = 64 << 10;
/// Longest pause inside a request's body.
pub(crate) const BODY_PAUSE_MAX: Duration = Duration::from_secs(20);
/// Longest time for a whole body: 8 MiB at 560 kbit/s.
pub(crate) const BODY_TIME_MAX: Duration = Duration::from_secs(120);
/// Limits for reading and discarding the body of a refused request, which lets its sender receive the response.
pub(crate) const DISCARDED_LENGTH_MAX: usize = 32 << 20;
pub(crate) const DISCARDED_TIME_MAX: Duration = Duration::from_secs(5);
/// A client that takes no byte of a response for this long is disconnected.
pub(crate) const SEND_PAUSE_MAX: Duration = Duration::from_secs(60);
/// Most KiB of bodies in memory at once.
pub(crate) const BODIES_KIB_MAX: usize = 128 << 10;
/// Most of these for one access token; and as many only for the unix socket.
pub(crate) const BODIES_KIB_OF_ONE: usize = 32 << 10;
/// Most bytes of a JSON body.
pub(crate) const JSON_LENGTH_MAX: usize = 128 << 10;

/// Threads that call the store.
pub(crate) const STORE_THREADS: usize = 16;
/// Most requests that wait for such a thread; further ones get 503.
pub(crate) const WAITING_MAX: usize = 4096;
/// Most requests that wait until costs were counted; further ones get 503.
pub(crate) const COUNTS_WAITING_MAX: usize = 16;
/// Threads that look into versions. A filesystem that takes long to read delays no other calls of the store.
pub(crate) const FILES_THREADS: usize = 4;
/// Most requests that wait for such a thread; further ones get 503.
pub(crate) const FILES_WAITING_MAX: usize = 256;
/// Most downloads of files at once, in all and of one token.
pub(crate) const DOWNLOADS_MAX: usize = 64;
pub(crate) const DOWNLOADS_OF_ONE_MAX: usize = 8;
/// Bytes of a file read at a time for one response.
pub(crate) const FILE_PART: usize = 512 << 10;
/// Bytes of frames read from the store at a time for one response.
pub(crate) const ANSWER_BATCH: usize = 512 << 10;
/// Most bytes of cached ids of recipes, which decide what a token may read.
pub(crate) const ID_SETS_BYTES_MAX: usize = 256 << 20;
/// Number of newest versions that are considered when a restricted token asks which blocks it need not send.
pub(crate) const KNOWN_VERSIONS_MAX: usize = 64;

/// Most uploads at once, in all and of one token.
pub(crate) const UPLOADS_MAX: usize = 64;
pub(crate) const UPLOADS_OF_ONE_MAX: usize = 8;
/// Default limit for the bytes of one token's unfinished uploads: a few large disks.
pub const UPLOAD_LIMIT_DEFAULT: u64 = 1 << 40;
/// How long the data of an unfinished upload is kept for the next upload of the same token.
pub(crate) const UNFINISHED_KEPT: Duration = Duration::from_secs(3 * 86_400);
/// Most packs of one token's unfinished uploads: as many as the largest uploads leave within the limit of bytes. The
/// oldest are discarded.
pub(crate) const UNFINISHED_PACKS_MAX: usize = 4096;
/// Pause between searches for data to discard.
pub(crate) const DISCARD_PAUSE: Duration = Duration::from_secs(60);
/// When a token begins another upload, its uploads without requests for this long are ended: their client was cut off.
pub(crate) const UPLOAD_STALE: Duration = Duration::from_secs(20);
/// The same for an upload whose connections have all ended.
pub(crate) const UPLOAD_LEFT: Duration = Duration::from_secs(2);
/// A promise to send a block counts for this long.
pub(crate) const PROMISE_KEPT: Duration = Duration::from_secs(30);
/// Most promised blocks that are remembered; more are sent by everybody who has them.
pub(crate) const PROMISES_MAX: usize = 1 << 18;
/// Pause between two looks at what other uploads have sent.
pub(crate) const PROMISE_PAUSE: Duration = Duration::from_millis(20);
/// An upload without requests for this long is ended.
pub(crate) const UPLOAD_IDLE_MAX: Duration = Duration::from_secs(600);
/// Most ids remembered as sent in one upload of a restricted token: 2 TiB of data.
pub(crate) const SENT_IDS_MAX: usize = 32 << 20;
/// Most ids that one upload remembers from earlier unfinished uploads: 1 TiB of files' blocks. The most recent packs
/// come first; the others wait for the next upload.
pub(crate) const LEFTOVER_IDS_MAX: usize = 16 << 20;
/// The store's lock is released after this time without changes.
pub(crate) const WRITER_IDLE_MAX: Duration = Duration::from_secs(3);

/// Most events kept for clients that reconnect.
pub(crate) const EVENTS_KEPT: usize = 10_000;
/// Pause between looks at the catalog for changes.
pub(crate) const WATCH_PAUSE: Duration = Duration::from_secs(1);
/// Longest silence of a stream of events.
pub(crate) const EVENTS_PAUSE: Duration = Duration::from_secs(15);

/// Most casts that are listed at once.
pub(crate) const CASTS_MAX: usize = 64;
/// A cast is listed for this long after its sender's last report.
pub(crate) const CAST_KEPT: Duration = Duration::from_secs(600);
/// Most receivers in a report of a cast, and most bytes of a text in it.
pub(crate) const CAST_RECEIVERS_MAX: usize = 128;
pub(crate) const CAST_TEXT_LENGTH_MAX: usize = 255;
/// Most points in a report of the store's growth.
pub(crate) const GROWTH_POINTS_MAX: usize = 1000;
/// The list of live disks is reused for this long.
pub(crate) const DISKS_AGE_MAX: Duration = Duration::from_secs(2);

/// Longest time for requests under way when the origin ends.
pub(crate) const END_TIME_MAX: Duration = Duration::from_secs(20);
/// The same after a successor took over: nobody waits for these requests.
pub(crate) const HANDED_OVER_TIME_MAX: Duration = Duration::from_secs(600);
/// A server that was replaced lets the requests under way have the store's lock for this long before it parks the uploads.
pub(crate) const RELEASE_PAUSE: Duration = Duration::from_millis(50);
/// A server that was replaced ends idle connections after this time. Clients of Platter use no connection that was idle for
/// ten seconds, so none of them sends a request into a connection that ends.
pub(crate) const REPLACED_IDLE_MAX: Duration = Duration::from_secs(12);

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// A unix socket; everybody who may open it has all rights.
    Unix(PathBuf),
    /// A TCP address, always with TLS and access tokens.
    Tcp(SocketAddr),
}

impl ListenAddress {
    /// The address as another process writes it, too: paths are absolute.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Unix(path) => {
                let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                format!("unix:{}", path.display())
            }
            Self::Tcp(address) => address.to_string(),
        }
    }
}

impl FromStr for ListenAddress {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text.strip_prefix("unix:") {
            Some("") => Err(Error::refused("unix: must be followed by the path of a socket")),
            Some(path) => Ok(Self::Unix(path.into())),
            None => text.parse().map(Self::Tcp).map_err(|_| {
                Error::refused(format!("{text:?} is neither unix:PATH nor ADDRESS:PORT such as 0.0.0.0:7440"))
            }),
        }
    }
}

/// Lists the live disks of a store on this machine. The caller provides this function, because the origin does not know
/// the processes that serve disks.
pub type ListDisks = Arc<dyn Fn(&Store) -> Result<Vec<ListedDisk>> + Send + Sync>;

/// Casts on demand, and reports the state of each cast, by its id, to the function. Every call returns at once. The caller provides them,
/// because the origin knows neither the protocol nor its sockets.
pub trait CastOnDemand: Send + Sync {
    /// Casts a version of the store in one of the families. Whoever may not read everything has a sharing group (the second value), and
    /// gets a cast of that group, without any other block.
    ///
    /// # Errors
    /// Why the cast failed.
    fn version(
        &self,
        store: &Store,
        resolved: &Resolved,
        asked: (&[CastFamily], Option<&str>),
        tell: TellOfCast,
    ) -> Result<CastOffer>;

    /// Casts what nodes lack of `hoard`, all of which the asking node may read, if enough nodes ask. The revision in the request is of
    /// the same hoard, or 0.
    ///
    /// # Errors
    /// Why the cast failed.
    fn hoard(
        &self,
        store: &Store,
        hoard: &HoardSnapshot,
        request: &AskForHoardCastRequest,
        tell: TellOfCast,
    ) -> Result<HoardCastOffer>;
}

/// Takes the state of a cast.
pub type TellOfCast = Arc<dyn Fn(&str, &CastStatus) + Send + Sync>;

/// Lists the scores on which the overlays of a store's directory stand: their recipes are not collected. The caller provides
/// this function, too.
pub type OverlayBases = Arc<dyn Fn(&Store) -> Result<Vec<Score>> + Send + Sync>;

/// Tells the stores that were replaced; the flag: also those that confirmed it before. The caller provides this function, because the
/// origin is no client of other origins.
pub type TellFormer = Arc<dyn Fn(&Standing, StoreId, bool) -> FormerAnswers + Send + Sync>;

/// Options of an origin.
#[derive(Clone)]
pub struct ServeOptions {
    /// The store.
    pub store: StorePlace,
    /// Addresses to listen on. Empty: `serve.sock` in the store's directory.
    pub listen: Vec<ListenAddress>,
    /// Certificate for TLS. `None`: the store's own certificate, created at the first start.
    pub tls: Option<TlsFiles>,
    /// Take over from the server that runs on the same store, if one does.
    pub take_over: bool,
    /// Most bytes of the unfinished uploads of one access token.
    pub upload_limit: u64,
    /// The tool version in the records of clones, such as `platter 0.1.0`.
    pub tool_version: String,
    /// For `GET /api/v1/disks`.
    pub list_disks: ListDisks,
    /// Reads the files inside of versions.
    pub look_inside: Arc<dyn LookInside>,
    /// Casts on demand. `None`: there are none.
    pub cast: Option<Arc<dyn CastOnDemand>>,
    /// Collect garbage in intervals.
    pub collections: Option<Collections>,
    /// Read every pack back once in this period.
    pub scrub_period: Option<Duration>,
    /// For garbage collection.
    pub overlay_bases: OverlayBases,
    /// For the stores that this one has replaced.
    pub tell_former: TellFormer,
}

/// Scheduled garbage collections.
#[derive(Clone, Copy, Debug)]
pub struct Collections {
    /// Time between two of them.
    pub every: Duration,
    /// The zstd level at which frames that it makes smaller are compressed again.
    pub recompress: Option<i32>,
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
