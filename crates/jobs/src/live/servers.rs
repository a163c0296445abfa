//! The servers of one process: each takes its address first, then runs in a thread of its own until all are to stop.
//!
//! Owns nothing of a protocol: a new one is a function here that gives a [`Server`], and a line in
//! [`Server::open_all`]. Must never leave one running when another has ended.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use platter_export::fuse::{FuseOptions, FuseServer};
use platter_export::nbd::{NbdOptions, NbdServer};
use platter_export::ninep::{NinepOptions, NinepServer};
use platter_image::{Error, Result};
use platter_transport::Listener;

use super::attach::{AttachRequest, LiveEvent};
use super::served::Served;

/// Where clients come in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServeAddress {
    /// A unix socket, for its owner only.
    Unix(PathBuf),
    /// A TCP port; other machines may reach one of NBD with TLS. Without TLS, only processes of the same user come in, and
    /// root's.
    Tcp(SocketAddr),
}

impl ServeAddress {
    fn listener(&self) -> Result<Listener> {
        match self {
            Self::Unix(path) => Listener::unix(path),
            Self::Tcp(address) => Listener::tcp(*address),
        }
    }

    /// How a client of NBD writes a disk; with TLS he has to say where his certificates are, too.
    fn nbd_uri(&self, disk: &str, tls: bool) -> String {
        let scheme = if tls { "nbds" } else { "nbd" };
        match self {
            Self::Unix(path) => format!("{scheme}+unix:///{disk}?socket={}", path.display()),
            Self::Tcp(address) => format!("{scheme}://{address}/{disk}"),
        }
    }
}

impl fmt::Display for ServeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Tcp(address) => write!(f, "{address}"),
        }
    }
}

/// Where the tree of all images is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FuseAddress {
    /// An empty directory.
    pub mount_point: PathBuf,
    /// Let users other than this one in.
    pub allow_other: bool,
}

/// How clients of one server write the disk of a name.
pub(super) type Uri = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// What a server does with the disks of the process.
pub(super) type Run = Box<dyn FnOnce(&Arc<Served>) -> Result<()> + Send>;

/// A server whose address is taken: whoever connects before it runs, waits.
pub(super) struct Server {
    pub(super) uri: Uri,
    /// It serves the tree of all images, so it is of use without a disk.
    pub(super) has_tree: bool,
    /// Serves until the process is to stop.
    pub(super) run: Run,
}

impl Server {
    /// Takes every address that is asked for.
    ///
    /// # Errors
    /// `Refused` when one is in use, none is asked for, or there would be nothing to serve; `Io`.
    pub(super) fn open_all(request: &AttachRequest) -> Result<Vec<Self>> {
        let servers: Vec<Self> = [
            request.nbd.as_ref().map(|address| nbd(address, request)),
            request.fuse.as_ref().map(fuse),
            request.ninep.as_ref().map(|address| ninep(address, request.insecure_loopback)),
        ]
        .into_iter()
        .flatten()
        .collect::<Result<_>>()?;
        if servers.is_empty() {
            return Err(Error::refused(
                "nobody could reach it: name a place to serve at: --nbd, --fuse or --9p",
            ));
        }
        let goes_on = request.node.is_some() || servers.iter().any(|server| server.has_tree);
        if request.versions.is_empty() && !goes_on {
            return Err(Error::refused("there is nothing to serve: name a version, such as lab/debian12"));
        }
        Ok(servers)
    }

    /// Runs them all, each in a thread. When one ends, with an error or without, the others are stopped; gives the
    /// first error in the order of `servers`.
    pub(super) fn run_all(servers: Vec<Self>, served: &Arc<Served>) -> Result<()> {
        thread::scope(|scope| {
            let run = |server: Self| {
                let _stops = StopAll(&served.request().stop);
                (server.run)(served)
            };
            let threads: Vec<_> =
                servers.into_iter().map(|server| scope.spawn(move || run(server))).collect();
            let mut first = Ok(());
            for thread in threads {
                let ended = thread.join();
                first = first.and(
                    ended.unwrap_or_else(|_| Err(Error::bug("a server broke in the middle of its work"))),
                );
            }
            first
        })
    }
}

/// Stops everything when it is dropped, also by a panic.
struct StopAll<'a>(&'a AtomicBool);

impl Drop for StopAll<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn nbd(address: &ServeAddress, request: &AttachRequest) -> Result<Server> {
    let listener = address.listener()?;
    let (tls, insecure_loopback) = (request.tls.clone(), request.insecure_loopback);
    let has_tls = tls.is_some();
    let run = move |served: &Arc<Served>| {
        let told = served.clone();
        let options = NbdOptions {
            on_event: Arc::new(move |event| told.tell(&LiveEvent::Nbd(event))),
            tls,
            insecure_loopback,
            ..NbdOptions::default()
        };
        NbdServer::serve(listener, served.clone(), options, &served.request().stop)
    };
    let address = address.clone();
    Ok(Server {
        uri: Arc::new(move |disk| address.nbd_uri(disk, has_tls)),
        has_tree: false,
        run: Box::new(run),
    })
}

fn fuse(address: &FuseAddress) -> Result<Server> {
    let FuseAddress { mount_point, allow_other } = address.clone();
    let shown = mount_point.clone();
    let run = move |served: &Arc<Served>| {
        let told = served.clone();
        let options = FuseOptions {
            allow_other,
            on_event: Arc::new(move |event| told.tell(&LiveEvent::Fuse(event))),
            ..FuseOptions::default()
        };
        FuseServer::serve(&mount_point, served.tree()?, options, &served.request().stop)
    };
    let uri = move |disk: &str| shown.join(disk).join("live.raw").display().to_string();
    Ok(Server { uri: Arc::new(uri), has_tree: true, run: Box::new(run) })
}

fn ninep(address: &ServeAddress, insecure_loopback: bool) -> Result<Server> {
    let listener = address.listener()?;
    let run = move |served: &Arc<Served>| {
        let told = served.clone();
        let options = NinepOptions {
            on_event: Arc::new(move |event| told.tell(&LiveEvent::Ninep(event))),
            insecure_loopback,
            ..NinepOptions::default()
        };
        NinepServer::serve(listener, served.tree()?, options, &served.request().stop)
    };
    let address = address.clone();
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
        while !served.request().stop.load(Ordering::Relaxed) {
            thread::sleep(std::time::Duration::from_millis(1));
        }
        Ok(())
    }

    /// Whichever ends, the others end too, and its error is told; a panic is one.
    #[test]
    fn one_that_ends_ends_all() {
        let (_folder, request) = crate::live::tests::request();
        let run = |last: fn(&Arc<Served>) -> Result<()>| {
            let served =
                Served::open(AttachRequest { stop: Arc::default(), ..request.clone() }, Box::new(|_| {}));
            let servers =
                vec![server(false, until_stopped), server(true, until_stopped), server(false, last)];
            Server::run_all(servers, &served.unwrap())
        };
        run(|_| Ok(())).unwrap();
        assert_eq!(run(|_| Err(Error::missing("gone"))).unwrap_err().kind(), ErrorKind::Missing);
        assert_eq!(run(|_| panic!("no")).unwrap_err().kind(), ErrorKind::Bug);
    }

    #[test]
    fn nothing_to_serve_is_refused() {
        let (_folder, request) = crate::live::tests::request();
        let error = Server::open_all(&request).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("--nbd"), "{error}");
        let dir = request.place.dir();
        let nbd = Some(ServeAddress::Unix(dir.join("nbd.sock")));
        let error = Server::open_all(&AttachRequest { nbd, ..request }).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("name a version"), "{error}");
    }
}
