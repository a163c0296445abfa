//! The listening sockets of a server: those of its clients, and one at which a successor asks for all of them.
//!
//! Owns the sockets' files: they are removed when this is dropped, unless another process took the sockets over.

use std::path::Path;

use platter_image::{Error, Result};
use platter_transport::{Listener, Parcel};

use crate::config::ListenAddress;

/// At which a successor asks, in the store's directory.
pub(crate) const CONTROL_SOCKET: &str = "serve-control.sock";

/// See above.
pub(crate) struct Sockets {
    /// `None` where another server of the same store has it: then this one cannot be taken over.
    pub(crate) control: Option<Listener>,
    /// In the order of the addresses on the command line.
    pub(crate) clients: Vec<Listener>,
}

impl Sockets {
    /// Listens at all addresses.
    ///
    /// # Errors
    /// `Refused` when a server answers at one of them; `Io`.
    pub(crate) fn open(dir: &Path, addresses: &[ListenAddress], note: impl Fn(String)) -> Result<Self> {
        let open = |address: &ListenAddress| match address {
            ListenAddress::Unix(path) => Listener::unix(path),
            ListenAddress::Tcp(address) => Listener::tcp(*address),
        };
        let clients = addresses.iter().map(open).collect::<Result<_>>()?;
        let control = Listener::unix(&dir.join(CONTROL_SOCKET));
        let control = control
            .inspect_err(|error| note(format!("this server cannot be replaced while it serves: {error}")));
        Ok(Self { control: control.ok(), clients })
    }

    /// Copies for a successor.
    ///
    /// # Errors
    /// `Io` when there are too many open files.
    pub(crate) fn to_parcels(&self) -> Result<Vec<Parcel>> {
        self.control.iter().chain(&self.clients).map(Listener::to_parcel).collect()
    }

    /// The other end of [`Sockets::to_parcels`]: from now on, this process owns the files.
    ///
    /// # Errors
    /// `Corrupt`; `Io` when a file is gone.
    pub(crate) fn from_parcels(parcels: Vec<Parcel>) -> Result<Self> {
        let mut listeners = parcels.into_iter().map(Listener::from_parcel);
        let control = listeners.next().ok_or_else(|| Error::corrupt("no sockets came"))??;
        Ok(Self { control: Some(control), clients: listeners.collect::<Result<_>>()? })
    }

    /// Another process has the sockets and goes on.
    pub(crate) fn leave(self) {
        self.control.into_iter().chain(self.clients).for_each(Listener::leave);
    }
}
