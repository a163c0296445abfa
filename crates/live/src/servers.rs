//! The servers that all disks of a process share. Each opens its address first, then runs on its own thread until all
//! stop.
//!
//! Contains no protocol: a new one is a function here that returns a [`Server`], and a line in [`Server::open_all`].
//! Must never leave one running when another has ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use platter_export::fuse::{FuseHandover, FuseOptions, FuseServer};
use platter_export::nbd::{NbdOptions, NbdServer, NbdTls};
use platter_export::ninep::{NinepOptions, NinepServer};
use platter_export::{Exports, MovedSession, SocketHandover};
use platter_image::{Error, IoContext, Result};
use platter_transport::{Listener, Parcel};

use super::address::{FUSE, FuseAddress, NBD, NINEP, NbdAddress, NinepAddress, ServeAddress, ServersRequest};
use super::event::{LiveEvent, OnEvent};
use super::handover::Handover;
use super::served::Served;

/// Returns the URI of a disk at one server.
pub(super) type Uri = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// Runs a server with the disks of the process.
pub(super) type Run = Box<dyn FnOnce(&Arc<Served>) -> Result<()> + Send>;

/// A server with an open address: clients that connect before it runs wait.
pub(super) struct Server {
    pub(super) uri: Uri,
    /// Whether it serves the tree of all images, which is useful without disks.
    pub(super) has_tree: bool,
    /// Serves until the process stops.
    pub(super) run: Run,
}

impl Server {
    /// Opens all requested addresses.
    ///
    /// # Errors
    /// `Refused` when one is in use; `Io`.
    pub(super) fn open_all(request: &ServersRequest, served: &Arc<Served>) -> Result<Vec<Self>> {
        let inherited = |name| served.inherited.lock().take(name);
        let servers = [
            request.nbd.as_ref().map(|address| nbd(address, inherited(NBD))),
            request.fuse.as_ref().map(|address| fuse(address, inherited(FUSE), served)),
            request.ninep.as_ref().map(|address| ninep(address, inherited(NINEP))),
        ];
        servers.into_iter().flatten().collect()
    }

    /// Runs all servers, each on a thread, until `stop` is set. When one ends, with or without an error, the others are
    /// stopped. Returns the first error in the order of `servers`.
    pub(super) fn run_all(servers: Vec<Self>, served: &Arc<Served>) -> Result<()> {
        thread::scope(|scope| {
            let start = |server: Self| {
                // Also dropped when the thread cannot be started.
                let stops = StopAll(served.stop());
                let run = move || {
                    let _stops = stops;
                    (server.run)(served)
                };
                thread::Builder::new().spawn_scoped(scope, run).context(|| "starting a thread".into())
            };
            let threads: Vec<_> = servers.into_iter().map(start).collect();
            let mut first = Ok(());
            for thread in threads {
                let ended = thread.and_then(|thread| {
                    thread.join().unwrap_or_else(|_| Err(Error::bug("a server panicked")))
                });
                first = first.and(ended);
            }
            first
        })
    }
}

/// Stops everything when it is dropped, also after a panic.
struct StopAll<'a>(&'a AtomicBool);

impl Drop for StopAll<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Opens an address for clients, together with the clients of a predecessor.
fn listener(address: &ServeAddress, inherited: Option<Vec<Parcel>>) -> Result<SocketHandover> {
    match inherited {
        Some(parcels) => SocketHandover::from_parcels(parcels),
        None => Ok(SocketHandover { listener: address.listener()?, sessions: Vec::new() }),
    }
}

/// An open NBD address.
pub(super) struct NbdPort {
    listener: Listener,
    /// Sessions of a predecessor's clients.
    sessions: Vec<MovedSession>,
    tls: Option<NbdTls>,
    insecure_loopback: bool,
}

impl NbdPort {
    /// # Errors
    /// `Refused` when the address is in use, or the certificates are invalid; `Missing` when they do not exist; `Io`.
    pub(super) fn open(address: &NbdAddress, inherited: Option<Vec<Parcel>>) -> Result<Self> {
        let SocketHandover { listener, sessions } = listener(&address.address, inherited)?;
        Ok(Self {
            listener,
            sessions,
            tls: address.tls.as_ref().map(super::address::TlsFolder::open).transpose()?,
            insecure_loopback: address.insecure_loopback,
        })
    }

    /// Serves these disks until `stop` is set.
    ///
    /// # Errors
    /// As [`NbdServer::serve`].
    pub(super) fn serve(
        self,
        name: &str,
        exports: Arc<dyn Exports>,
        on_event: &Arc<OnEvent>,
        handover: &Handover,
        stop: &AtomicBool,
    ) -> Result<()> {
        let told = on_event.clone();
        let options = NbdOptions {
            on_event: Arc::new(move |event| told(&LiveEvent::Nbd(event))),
            tls: self.tls,
            insecure_loopback: self.insecure_loopback,
            ..NbdOptions::default()
        };
        let pause = handover.pause.clone();
        let mut server = NbdServer::over(self.listener, self.sessions, exports, options, pause)?;
        handover.run(name, &mut server, stop)
    }
}

fn nbd(address: &NbdAddress, inherited: Option<Vec<Parcel>>) -> Result<Server> {
    let port = NbdPort::open(address, inherited)?;
    let run = |served: &Arc<Served>| {
        port.serve(NBD, served.shared_exports(), served.on_event(), &served.handover, served.stop())
    };
    let address = address.clone();
    Ok(Server { uri: Arc::new(move |disk| address.uri(disk)), has_tree: false, run: Box::new(run) })
}

fn fuse(address: &FuseAddress, inherited: Option<Vec<Parcel>>, served: &Arc<Served>) -> Result<Server> {
    let FuseAddress { mount_point, allow_other } = address.clone();
    let told = served.on_event().clone();
    let options = FuseOptions {
        allow_other,
        on_event: Arc::new(move |event| told(&LiveEvent::Fuse(event))),
        ..FuseOptions::default()
    };
    let pause = served.handover.pause.clone();
    let run: Run = match inherited.into_iter().flatten().next() {
        // Its open files need the disks, which are attached later.
        Some(parcel) => Box::new(move |served| {
            let handover = FuseHandover::from_parcel(parcel)?;
            let mut server = FuseServer::take_over(handover, served.tree()?, options, pause)?;
            served.handover.run(FUSE, &mut server, served.stop())
        }),
        None => {
            let mut server = FuseServer::mount(&mount_point, served.tree()?, options, pause)?;
            Box::new(move |served| served.handover.run(FUSE, &mut server, served.stop()))
        }
    };
    let uri = move |disk: &str| mount_point.join(disk).join("live.raw").display().to_string();
    Ok(Server { uri: Arc::new(uri), has_tree: true, run })
}

fn ninep(address: &NinepAddress, inherited: Option<Vec<Parcel>>) -> Result<Server> {
    let NinepAddress { address, insecure_loopback } = address.clone();
    let SocketHandover { listener, sessions } = listener(&address, inherited)?;
    let run = move |served: &Arc<Served>| {
        let told = served.on_event().clone();
        let options = NinepOptions {
            on_event: Arc::new(move |event| told(&LiveEvent::Ninep(event))),
            insecure_loopback,
            ..NinepOptions::default()
        };
        let (tree, pause) = (served.tree()?, served.handover.pause.clone());
        let mut server = NinepServer::over(listener, sessions, tree, options, pause)?;
        served.handover.run(NINEP, &mut server, served.stop())
    };
    let uri = move |disk: &str| format!("9p:{address} {disk}/live.raw");
    Ok(Server { uri: Arc::new(uri), has_tree: true, run: Box::new(run) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use platter_image::ErrorKind;

    fn server(has_tree: bool, run: impl FnOnce(&Arc<Served>) -> Result<()> + Send + 'static) -> Server {
        Server { uri: Arc::new(|disk| format!("test:{disk}")), has_tree, run: Box::new(run) }
    }

    fn until_stopped(served: &Arc<Served>) -> Result<()> {
        while !served.stop().load(Ordering::Relaxed) {
            thread::sleep(std::time::Duration::from_millis(1));
        }
        Ok(())
    }

    /// When one server ends, the others end too, and its error is returned; a panic counts as an error.
    #[test]
    fn one_that_ends_ends_all() {
        let (_folder, request) = crate::tests::request();
        let run = |last: fn(&Arc<Served>) -> Result<()>| {
            let request = crate::AttachRequest { stop: Arc::default(), ..request.clone() };
            let served = Served::open(request, Default::default(), Box::new(|_| {}));
            let servers =
                vec![server(false, until_stopped), server(true, until_stopped), server(false, last)];
            Server::run_all(servers, &served.unwrap())
        };
        run(|_| Ok(())).unwrap();
        assert_eq!(run(|_| Err(Error::missing("gone"))).unwrap_err().kind(), ErrorKind::Missing);
        assert_eq!(run(|_| panic!("no")).unwrap_err().kind(), ErrorKind::Bug);
    }
}
