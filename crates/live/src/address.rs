//! Addresses of NBD, FUSE and 9P servers, as a command line names them.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use platter_export::nbd::NbdTls;
use platter_image::Result;
use platter_transport::Listener;
use serde::{Deserialize, Serialize};

/// Names of the shared servers, as a process and its successor use them.
pub(super) const NBD: &str = "nbd";
/// See [`NBD`].
pub(super) const FUSE: &str = "fuse";
/// See [`NBD`].
pub(super) const NINEP: &str = "9p";

/// Where clients connect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServeAddress {
    /// A unix socket, accessible only to its owner.
    Unix(PathBuf),
    /// A TCP port. Other machines may connect to an NBD port with TLS. Without TLS, only processes of the same user and
    /// of root may connect.
    Tcp(SocketAddr),
}

impl ServeAddress {
    pub(super) fn listener(&self) -> Result<Listener> {
        match self {
            Self::Unix(path) => Listener::unix(path),
            Self::Tcp(address) => Listener::tcp(*address),
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

/// An NBD address and its access rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NbdAddress {
    /// Where clients connect.
    pub address: ServeAddress,
    /// TLS settings; every client then must use TLS.
    #[serde(default)]
    pub tls: Option<TlsFolder>,
    /// For TCP without TLS: accept every user of this machine, not only this process's user and root.
    #[serde(default)]
    pub insecure_loopback: bool,
}

impl NbdAddress {
    /// The URI of a disk for clients. With TLS, clients also have to name the folder of their certificates.
    pub(super) fn uri(&self, disk: &str) -> String {
        let scheme = if self.tls.is_some() { "nbds" } else { "nbd" };
        match &self.address {
            ServeAddress::Unix(path) => format!("{scheme}+unix:///{disk}?socket={}", path.display()),
            ServeAddress::Tcp(address) => format!("{scheme}://{address}/{disk}"),
        }
    }
}

/// The certificates of an NBD server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsFolder {
    /// The folder: see [`NbdTls::open`].
    pub dir: PathBuf,
    /// Clients need a certificate of the folder's authority.
    pub verify_peer: bool,
}

impl TlsFolder {
    pub(super) fn open(&self) -> Result<NbdTls> {
        NbdTls::open(&self.dir, self.verify_peer)
    }
}

/// Options of the mounted tree of all images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FuseAddress {
    /// An empty directory.
    pub mount_point: PathBuf,
    /// Allow access by other users.
    pub allow_other: bool,
}

/// Options of the tree of all images over 9P.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NinepAddress {
    /// Where clients connect.
    pub address: ServeAddress,
    /// See [`NbdAddress::insecure_loopback`].
    pub insecure_loopback: bool,
}

/// The addresses of the servers that all disks of a process share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServersRequest {
    /// The NBD address, if any.
    pub nbd: Option<NbdAddress>,
    /// The mount point of the tree of all images, if any.
    pub fuse: Option<FuseAddress>,
    /// The 9P address of the tree of all images, if any.
    pub ninep: Option<NinepAddress>,
    /// Which changes of the tree of all images are allowed.
    pub tree_access: TreeAccess,
}

/// Which changes of the tree of all images are allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TreeAccess {
    /// Nothing, not even a disk attached for writing; the mount is read-only.
    #[default]
    ReadOnly,
    /// `live.raw` of the disks that are attached for writing; no names.
    Disks,
    /// Also names: versions can be removed, images renamed, and files copied into `import/`.
    Names,
}

impl ServersRequest {
    /// The server addresses, for comparison with another process: paths are absolute.
    pub(super) fn places(&self) -> BTreeSet<String> {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let place = |address: &ServeAddress| match address {
            ServeAddress::Unix(path) => absolute(path).display().to_string(),
            ServeAddress::Tcp(address) => address.to_string(),
        };
        let nbd = self.nbd.as_ref().map(|nbd| format!("NBD at {}", place(&nbd.address)));
        let fuse =
            self.fuse.as_ref().map(|fuse| format!("FUSE at {}", absolute(&fuse.mount_point).display()));
        let ninep = self.ninep.as_ref().map(|ninep| format!("9P at {}", place(&ninep.address)));
        nbd.into_iter().chain(fuse).chain(ninep).collect()
    }

    /// The names of the requested servers.
    pub(super) fn names(&self) -> BTreeSet<String> {
        let all = [(NBD, self.nbd.is_some()), (FUSE, self.fuse.is_some()), (NINEP, self.ninep.is_some())];
        all.into_iter().filter(|(_, is_wanted)| *is_wanted).map(|(name, _)| name.to_owned()).collect()
    }
}
