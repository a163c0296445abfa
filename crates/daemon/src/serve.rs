//! Runs an origin from start to end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use platter_api::SERVE_SOCKET;
use platter_image::{Error, IoContext, Result};
use platter_transport::{Identity, TlsFiles, notify, notify_main_process, origin_server};
use rustls::ServerConfig;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::api::{replaced_router, router, too_many_router};
use crate::background::keep_watch;
use crate::collect::keep_collecting;
use crate::config::{
    ACCESS_THREADS, END_TIME_MAX, HANDED_OVER_TIME_MAX, ListenAddress, RELEASE_PAUSE, STORE_THREADS,
    ServeOptions,
};
use crate::handover::{Held, Inherited, release_to, take_over, taken_over};
use crate::listen::{Connections, Door, House, Listener, Places, accept_until};
use crate::origin::Origin;
use crate::scrub;
use crate::serve_event::{OnEvent, ServeEvent};
use crate::sockets::Sockets;
use crate::successor;

/// The store's own certificate and key, in the store's directory.
const CERTIFICATE: &str = "serve-certificate.pem";
const KEY: &str = "serve-key.pem";
/// Longest time for calls of the store after the last connection ended.
const STORE_TIME_MAX: Duration = Duration::from_secs(10);
/// Interval of checks whether the store's lock can be released.
const RELEASE_LOOK: Duration = Duration::from_millis(20);

/// Serves a store until SIGTERM or SIGINT, or until a successor takes over.
///
/// # Errors
/// The errors of opening the store, the sockets and the certificate; `Refused` when the server to take over listens at other addresses;
/// `Transient` when requests did not end in time.
pub fn serve(options: &ServeOptions, on_event: impl Fn(&ServeEvent) + Send + Sync + 'static) -> Result<()> {
    // First, so that a store without its key gets no certificate and no sockets.
    if let Some(keys) = options.store.read_key_file()? {
        keys.domain().check_open()?;
    }
    let on_event: OnEvent = Arc::new(on_event);
    let (end, ending) = watch::channel(false);
    let addresses = addresses(options);
    let is_tcp = |address: &ListenAddress| matches!(address, ListenAddress::Tcp(_));
    // Everything that can fail comes before the running server gives its sockets away.
    let identity = addresses.iter().any(is_tcp).then(|| identity(options)).transpose()?;
    let tls = identity.as_ref().map(origin_server).transpose()?;
    let origin = Arc::new(Origin::open(options, ending)?);
    let places = Places::within(raise_files_limit(&on_event));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(STORE_THREADS + ACCESS_THREADS + 4)
        .thread_name("origin")
        .enable_all()
        .build()
        .context(|| "starting threads".into())?;
    let dir = options.store.dir();
    let sockets = match options.take_over.then(|| take_over(dir, &addresses)).transpose()?.flatten() {
        Some(Inherited { sockets, predecessor }) => {
            origin.writer.wait_for(predecessor);
            sockets
        }
        None => Sockets::open(dir, &addresses, |note| on_event(&ServeEvent::Note(note)))?,
    };
    let fingerprint = identity.map(|identity| identity.fingerprint().to_string()).unwrap_or_default();
    tell_places(&addresses, &sockets, &fingerprint, &on_event);
    let scrubbing = options.scrub_period.map(|period| scrub::start(&origin, period, on_event.clone()));
    let scrubbing = scrubbing.transpose()?;
    successor::start(&origin, options.tell_former.clone(), on_event.clone())?;
    let server = Server { origin: Arc::clone(&origin), connections: Connections::new(places), end, on_event };
    let result = runtime.block_on(server.run(&addresses, sockets, tls));
    server.end.send_replace(true);
    // It looks for the end several times a second. A thread that panicked has ended as well.
    let _ = scrubbing.map(std::thread::JoinHandle::join);
    // Dropping the origin syncs unfinished sessions, so it comes after the threads that use them.
    runtime.shutdown_timeout(STORE_TIME_MAX);
    drop(server);
    drop(origin);
    result
}

/// Shared state of the tasks of a server.
struct Server {
    origin: Arc<Origin>,
    connections: Connections,
    end: watch::Sender<bool>,
    on_event: OnEvent,
}

impl Server {
    async fn run(
        &self,
        addresses: &[ListenAddress],
        sockets: Sockets,
        tls: Option<Arc<ServerConfig>>,
    ) -> Result<()> {
        let signals = |kind| signal(kind).context(|| "listening for signals".into());
        let (mut terminate, mut interrupt) =
            (signals(SignalKind::terminate())?, signals(SignalKind::interrupt())?);
        let accepting = self.accept(&sockets, tls.as_ref())?;
        let control = sockets.control.as_ref().map(Listener::of).transpose()?;
        let watching = tokio::spawn(keep_watch(Arc::clone(&self.origin)));
        if let Some(collections) = self.origin.collections {
            tokio::spawn(keep_collecting(Arc::clone(&self.origin), collections, self.on_event.clone()));
        }
        let held: Held = Arc::new(Mutex::new(Some(sockets)));
        let places = addresses.iter().map(ListenAddress::place).collect();
        let taken_over = taken_over(control, places, Arc::clone(&held));
        tokio::pin!(taken_over);
        notify("READY=1");
        let mut successor = tokio::select! {
            _ = terminate.recv() => None,
            _ = interrupt.recv() => None,
            successor = &mut taken_over => Some(successor),
        };
        let sockets = held.lock().take();
        if sockets.is_none() && successor.is_none() {
            // A successor took them at the same moment.
            successor = Some(taken_over.await);
        }
        match &successor {
            Some(successor) => {
                self.origin.is_replaced.store(true, Ordering::Relaxed);
                notify_main_process(successor);
                (self.on_event)(&ServeEvent::HandedOver);
            }
            None => {
                notify("STOPPING=1");
                (self.on_event)(&ServeEvent::Ending);
            }
        }
        self.end.send_replace(true);
        for task in accepting {
            // A panicked listener has ended as well.
            let _ = task.await;
        }
        drop(sockets);
        let left = match &successor {
            Some(successor) => {
                self.release_store().await;
                release_to(successor);
                tokio::select! {
                    left = self.connections.wait_for_none(HANDED_OVER_TIME_MAX) => left,
                    _ = terminate.recv() => self.connections.wait_for_none(END_TIME_MAX).await,
                }
            }
            None => self.connections.wait_for_none(END_TIME_MAX).await,
        };
        let _ = watching.await;
        match left {
            0 => Ok(()),
            _ => Err(Error::transient(format!("{left} connections were closed: they did not end in time"))),
        }
    }

    /// Accepts clients at all sockets, each in a task.
    fn accept(&self, sockets: &Sockets, tls: Option<&Arc<ServerConfig>>) -> Result<Vec<JoinHandle<()>>> {
        let accept = |listener| {
            let door = match (&listener, tls) {
                (Listener::Unix(_), _) => Door::Unix,
                (Listener::Tcp(_), Some(tls)) => Door::Tls(Arc::clone(tls)),
                (Listener::Tcp(_), None) => return Err(Error::bug("TCP without TLS")),
            };
            let house = House {
                origin: Arc::clone(&self.origin),
                connections: self.connections.clone(),
                served: router(&self.origin, door.entrance()),
                turned_away: too_many_router(),
                replaced: replaced_router(),
            };
            Ok(tokio::spawn(accept_until(listener, door, house, self.on_event.clone())))
        };
        sockets.clients.iter().map(|listener| Listener::of(listener).and_then(accept)).collect()
    }

    /// Parks all uploads and releases the store's lock, which is never taken again. The successor continues the parked uploads.
    async fn release_store(&self) {
        self.connections.wait_for_none(RELEASE_PAUSE).await;
        self.origin.writer.close();
        loop {
            let origin = Arc::clone(&self.origin);
            let release = move || {
                origin.uploads.end_all();
                origin.writer.give_back_idle(Duration::ZERO)
            };
            // Requests that change the store hold the writer until they are answered.
            match tokio::task::spawn_blocking(release).await {
                Ok(false) => tokio::time::sleep(RELEASE_LOOK).await,
                _ => return,
            }
        }
    }
}

/// Returns the addresses for clients; the default is `serve.sock` in the store's directory.
fn addresses(options: &ServeOptions) -> Vec<ListenAddress> {
    match &options.listen[..] {
        [] => vec![ListenAddress::Unix(options.store.dir().join(SERVE_SOCKET))],
        listen => listen.to_vec(),
    }
}

fn tell_places(addresses: &[ListenAddress], sockets: &Sockets, fingerprint: &str, on_event: &OnEvent) {
    for (address, socket) in addresses.iter().zip(&sockets.clients) {
        on_event(&match address {
            ListenAddress::Unix(path) => ServeEvent::ListeningUnix(path.clone()),
            ListenAddress::Tcp(address) => ServeEvent::ListeningTcp {
                address: socket.tcp_address().unwrap_or(*address),
                fingerprint: fingerprint.to_owned(),
            },
        });
    }
}

/// Returns the certificate from the options, or the store's own, which is created if it is missing.
fn identity(options: &ServeOptions) -> Result<Identity> {
    if let Some(files) = &options.tls {
        return Identity::read(files);
    }
    let dir = options.store.dir();
    let own = TlsFiles { certificate: dir.join(CERTIFICATE), key: dir.join(KEY) };
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    // A certificate cannot carry every host name; clients that pin its fingerprint do not need one.
    Identity::read_or_make(&own, "platter origin", &[&[host.trim(), "localhost"], &["localhost"]])
}

/// Raises the limit of open files, because every connection is one. Returns the new limit.
fn raise_files_limit(on_event: &OnEvent) -> u64 {
    let wanted = Places::FILES;
    let raised = platter_transport::raise_files_limit(wanted);
    if raised < wanted {
        on_event(&ServeEvent::Note(format!(
            "the system allows {raised} of {wanted} open files, so fewer connections are accepted (ulimit -n)"
        )));
    }
    raised
}
