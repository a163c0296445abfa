//! Where disks are served: addresses of NBD, FUSE and 9P, as a command line names them.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use platter_export::nbd::NbdTls;
use platter_image::Result;
use platter_transport::Listener;
use serde::{Deserialize, Serialize};

/// Names of the servers that all disks share, between a process and its successor.
pub(super) const NBD: &str = "nbd";
/// See [`NBD`].
pub(super) const FUSE: &str = "fuse";
/// See [`NBD`].
pub(super) const NINEP: &str = "9p";

/// Where clients come in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServeAddress {
    /// A unix socket, for its owner only.
    Unix(PathBuf),
    /// A TCP port. Other machines may reach one of NBD with TLS. Without TLS, only processes of the same user come in, and
    /// root's.
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

/// An NBD address, and who may use it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NbdAddress {
    /// Where clients come in.
    pub address: ServeAddress,
    /// TLS, which every client then has to speak.
    #[serde(default)]
    pub tls: Option<TlsFolder>,
    /// Over TCP without TLS, let in every user of this machine, not only the one of this process and root.
    #[serde(default)]
    pub insecure_loopback: bool,
}

impl NbdAddress {
    /// How a client writes a disk. With TLS it has to say where its certificates are, too.
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

/// Where the tree of all images is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FuseAddress {
    /// An empty directory.
    pub mount_point: PathBuf,
    /// Let users other than this one in.
    pub allow_other: bool,
}

/// Where the tree of all images is served over 9P.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NinepAddress {
    /// Where clients come in.
    pub address: ServeAddress,
    /// See [`NbdAddress::insecure_loopback`].
    pub insecure_loopback: bool,
}

/// The addresses that all disks of a process share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServersRequest {
    /// Where NBD is served, if it is.
    pub nbd: Option<NbdAddress>,
    /// Where the tree of all images is mounted, if it is.
    pub fuse: Option<FuseAddress>,
    /// Where the tree of all images is served over 9P, if it is.
    pub ninep: Option<NinepAddress>,
    /// What may be changed in the tree.
    pub tree_access: TreeAccess,
}

/// What may be changed in the tree of all images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TreeAccess {
    /// Nothing, and the kernel knows: not even a disk that is attached for writing.
    #[default]
    ReadOnly,
    /// `live.raw` of the disks that are attached for writing; no names.
    Disks,
    /// These, and names: versions can be removed, images renamed, and files copied into `import/`.
    Names,
}

impl ServersRequest {
    /// Where disks are served, for comparison with another process: paths are absolute.
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

    /// The names of the servers that are asked for.
    pub(super) fn names(&self) -> BTreeSet<String> {
        let all = [(NBD, self.nbd.is_some()), (FUSE, self.fuse.is_some()), (NINEP, self.ninep.is_some())];
        all.into_iter().filter(|(_, is_wanted)| *is_wanted).map(|(name, _)| name.to_owned()).collect()
    }
}
