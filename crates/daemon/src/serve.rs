//! Runs an origin from start to end.

use std::sync::Arc;
use std::time::Duration;

use platter_api::SERVE_SOCKET;
use platter_image::{Error, IoContext, Result};
use platter_transport::{Identity, TlsFiles, origin_server};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::api::{router, too_many_router};
use crate::background::keep_watch;
use crate::config::{ACCESS_THREADS, END_TIME_MAX, ListenAddress, STORE_THREADS, ServeOptions};
use crate::listen::{Connections, Door, House, Listener, Places, accept_until};
use crate::notify::notify;
use crate::origin::Origin;
use crate::serve_event::{OnEvent, ServeEvent};

/// The store's own certificate and key, in the store's directory.
const CERTIFICATE: &str = "serve-certificate.pem";
const KEY: &str = "serve-key.pem";
/// Longest time for calls of the store after the last connection ended.
const STORE_TIME_MAX: Duration = Duration::from_secs(10);

/// Serves a store until SIGTERM or SIGINT.
///
/// # Errors
/// The errors of opening the store, the sockets and the certificate; `Transient` when requests did not end in time.
pub fn serve(options: &ServeOptions, on_event: impl Fn(&ServeEvent) + Send + Sync + 'static) -> Result<()> {
    let on_event: OnEvent = Arc::new(on_event);
    let (end, ending) = watch::channel(false);
    let origin = Arc::new(Origin::open(options, ending)?);
    let places = Places::within(raise_files_limit(&on_event));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(STORE_THREADS + ACCESS_THREADS + 4)
        .thread_name("origin")
        .enable_all()
        .build()
        .context(|| "starting threads".into())?;
    let result = runtime.block_on(run(options, &origin, places, &end, &on_event));
    // Dropping the origin syncs unfinished sessions, so it comes after the threads that use them.
    runtime.shutdown_timeout(STORE_TIME_MAX);
    drop(origin);
    result
}

async fn run(
    options: &ServeOptions,
    origin: &Arc<Origin>,
    places: Places,
    end: &watch::Sender<bool>,
    on_event: &OnEvent,
) -> Result<()> {
    let signals = |kind| signal(kind).context(|| "listening for signals".into());
    let (mut terminate, mut interrupt) =
        (signals(SignalKind::terminate())?, signals(SignalKind::interrupt())?);
    let connections = Connections::new(places);
    let mut accepting = Vec::new();
    for (listener, door) in listeners(options, on_event)? {
        let house = House {
            origin: Arc::clone(origin),
            connections: connections.clone(),
            served: router(origin, door.entrance()),
            turned_away: too_many_router(),
        };
        accepting.push(tokio::spawn(accept_until(listener, door, house, on_event.clone())));
    }
    let watching = tokio::spawn(keep_watch(Arc::clone(origin)));
    notify("READY=1");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    notify("STOPPING=1");
    on_event(&ServeEvent::Ending);
    end.send_replace(true);
    for task in accepting {
        // A panicked listener has ended as well.
        let _ = task.await;
    }
    let left = connections.wait_for_none(END_TIME_MAX).await;
    let _ = watching.await;
    if left > 0 {
        let seconds = END_TIME_MAX.as_secs();
        return Err(Error::transient(format!(
            "{left} connections did not end within {seconds} s and were cut"
        )));
    }
    Ok(())
}

fn listeners(options: &ServeOptions, on_event: &OnEvent) -> Result<Vec<(Listener, Door)>> {
    let dir = options.store.dir();
    let default = [ListenAddress::Unix(dir.join(SERVE_SOCKET))];
    let addresses = if options.listen.is_empty() { &default[..] } else { &options.listen[..] };
    let is_tcp = |address: &ListenAddress| matches!(address, ListenAddress::Tcp(_));
    let identity = addresses.iter().any(is_tcp).then(|| identity(options)).transpose()?;
    let mut listeners = Vec::new();
    for address in addresses {
        match (address, &identity) {
            (ListenAddress::Tcp(address), Some(identity)) => {
                let listener = Listener::tcp(*address)?;
                let address = listener.tcp_address().unwrap_or(*address);
                let fingerprint = identity.fingerprint().to_string();
                on_event(&ServeEvent::ListeningTcp { address, fingerprint });
                listeners.push((listener, Door::Tls(origin_server(identity)?)));
            }
            (ListenAddress::Unix(path), _) => {
                listeners.push((Listener::unix(path)?, Door::Unix));
                on_event(&ServeEvent::ListeningUnix(path.clone()));
            }
            (ListenAddress::Tcp(_), None) => return Err(Error::bug("TCP without TLS")),
        }
    }
    Ok(listeners)
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
    let limit = getrlimit(Resource::Nofile);
    let wanted = Places::FILES;
    let current = limit.current.unwrap_or(u64::MAX);
    if current >= wanted {
        return current;
    }
    let raised = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum: limit.maximum })
        .map_or(current, |()| raised);
    if raised < wanted {
        on_event(&ServeEvent::Note(format!(
            "the system allows {raised} of {wanted} open files, so fewer connections are accepted (ulimit -n)"
        )));
    }
    raised
}
