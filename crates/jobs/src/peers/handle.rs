//! Sharing as the node has it: started, told of nodes, asked for sources, ended.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};
use platter_cast::peer::{Choice, ChoiceOptions, Exchange, ExchangeOptions, Hello};
use platter_image::{Domain, IoContext, Result, Score};
use platter_transport::random_bytes;

use super::counts::PeerCounts;
use super::directory::{Directory, KnownNode};
use super::groups::Groups;
use super::holdings::Holdings;
use super::identity::Identity;
use super::keeper::Keeper;
use super::link::LinkContext;
use super::links::{Door, Links};
use super::machine::{Command, Machine, Parts};
use super::options::PeerOptions;
use super::origin::{Origin, OriginFrames};
use super::serving::Serving;
use super::source::PeerSource;

/// What may wait for the machine: messages with a frame each, and what own readers ask.
const EVENTS_MAX: usize = 64;
const COMMANDS_MAX: usize = 1024;
/// Who asks for counts waits no longer.
const COUNTS_TIME_MAX: Duration = Duration::from_secs(5);
/// Bytes of answers that may be under way, counting 16 KiB a block.
const BYTES_IN_FLIGHT_MAX: u64 = 64 << 20;

/// What sources and the handle share.
pub(super) struct Shared {
    pub(super) commands: Sender<Command>,
    pub(super) groups: Arc<Groups>,
    pub(super) holdings: Arc<dyn Holdings>,
    /// The machine takes nothing more.
    pub(super) has_ended: Arc<AtomicBool>,
    directory: Arc<Directory>,
    next_source: AtomicU64,
}

/// Tells that the machine ended, however it did.
struct Ending(Arc<AtomicBool>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A node that shares. It ends with this.
pub(crate) struct Peers {
    shared: Arc<Shared>,
    door: Option<Door>,
    fingerprint: String,
}

impl Peers {
    /// Begins to share: with nodes that are remembered at once, and with those that are learned.
    ///
    /// # Errors
    /// `Io` when the address cannot be listened at, or threads not be started.
    pub(crate) fn start(
        options: &PeerOptions,
        identity: Identity,
        directory: Directory,
        holdings: Arc<dyn Holdings>,
        origin: &Arc<dyn OriginFrames>,
    ) -> Result<Self> {
        let (commands, commanded) = bounded(COMMANDS_MAX);
        let (events, happened) = bounded(EVENTS_MAX);
        let (directory, groups) = (Arc::new(directory), Arc::new(Groups::default()));
        let hello = Hello { group: options.group, domain: Domain::SHARED, node: identity.id };
        let choice = ChoiceOptions {
            seed: u64::from_le_bytes(random_bytes()?),
            own: identity.id,
            bytes_in_flight_max: BYTES_IN_FLIGHT_MAX,
            homes: options.listen.is_some(),
        };
        let exchange = ExchangeOptions {
            hello,
            salt: u64::from_le_bytes(random_bytes()?),
            share_bits_per_second: options.share_bits_per_second,
        };
        let fingerprint = identity.fingerprint().to_string();
        let context =
            LinkContext { events: events.clone(), groups: groups.clone(), silence_max: options.silence_max };
        let links = Links {
            identity: Arc::new(identity),
            directory: directory.clone(),
            context,
            next_number: AtomicU64::new(0),
        };
        let links = Arc::new(links);
        let parts = Parts {
            choice: Choice::new(choice),
            exchange: Exchange::new(exchange),
            directory: directory.clone(),
            holdings: holdings.clone(),
            links: links.clone(),
            origin: Origin::start(origin, &groups, &events)?,
            keeper: Keeper::start(holdings.clone(), events.clone())?,
            serving: Serving::start(&holdings, &events)?,
            memory_bytes_max: options.memory_bytes_max,
            silence_max: options.silence_max,
            commands: commanded,
            events: happened,
        };
        let door = options.listen.map(|address| Door::open(address, &links)).transpose()?;
        let has_ended = Arc::new(AtomicBool::new(false));
        let ending = Ending(has_ended.clone());
        thread::Builder::new()
            .name("peers".to_owned())
            .spawn(move || {
                let _ending = ending;
                Machine::new(parts).run();
            })
            .context(|| "starting the thread of peers".to_owned())?;
        let shared =
            Shared { commands, groups, holdings, has_ended, directory, next_source: AtomicU64::new(0) };
        Ok(Self { shared: Arc::new(shared), door, fingerprint })
    }

    /// Where peers come in; if port 0 was asked for, with the port it got.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.door.as_ref().map(Door::address)
    }

    /// What this node shows its peers, 64 hexadecimal digits.
    pub(crate) fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Times that somebody came who is not known: the registry should be asked soon.
    pub(crate) fn strangers(&self) -> u64 {
        self.shared.directory.strangers()
    }

    /// The registry told these nodes.
    ///
    /// # Errors
    /// `Io` when they cannot be remembered; they are known all the same.
    pub(crate) fn learn(&self, nodes: &[KnownNode]) -> Result<()> {
        let (learned, written) = self.shared.directory.learn(nodes);
        if !learned.known.is_empty() || !learned.gone.is_empty() {
            // One that has ended needs to know nobody.
            let _ = self.shared.commands.send(Command::Nodes(learned));
        }
        written
    }

    /// The frames of a recipe. What nobody can give is tried for so long.
    pub(crate) fn source(&self, score: Score, retry_time_max: Duration) -> PeerSource {
        let number = self.shared.next_source.fetch_add(1, Ordering::Relaxed);
        PeerSource::new(self.shared.clone(), score, number, retry_time_max)
    }

    /// What was done so far.
    pub(crate) fn counts(&self) -> PeerCounts {
        let (sender, counts) = bounded(1);
        let sent = self.shared.commands.send(Command::Counts(sender));
        sent.ok().and_then(|()| counts.recv_timeout(COUNTS_TIME_MAX).ok()).unwrap_or_default()
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        // Sources that are left hear of it.
        let _ = self.shared.commands.send(Command::End);
    }
}
