//! The listening sockets of a server: those for clients, and a control socket at which a successor requests all of them.
//!
//! Owns the sockets' files: they are removed when this is dropped, unless another process took the sockets over.

use std::path::Path;

use platter_image::{Error, Result};
use platter_transport::{Listener, Parcel};

use crate::config::ListenAddress;

/// File name of the control socket, in the store's directory.
pub(crate) const CONTROL_SOCKET: &str = "serve-control.sock";

/// All listening sockets of a server.
pub(crate) struct Sockets {
    /// `None` if another server of the same store has it: then this server cannot be replaced while it runs.
    pub(crate) control: Option<Listener>,
    /// Sockets for clients, in the order of the addresses on the command line.
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

    /// Returns copies of all sockets for a successor.
    ///
    /// # Errors
    /// `Io` when there are too many open files.
    pub(crate) fn to_parcels(&self) -> Result<Vec<Parcel>> {
        self.control.iter().chain(&self.clients).map(Listener::to_parcel).collect()
    }

    /// Receives the result of [`Sockets::to_parcels`]. From now on, this process owns the files.
    ///
    /// # Errors
    /// `Corrupt`; `Io` when a file is gone.
    pub(crate) fn from_parcels(parcels: Vec<Parcel>) -> Result<Self> {
        let mut listeners = parcels.into_iter().map(Listener::from_parcel);
        let control = listeners.next().ok_or_else(|| Error::corrupt("the message contains no sockets"))??;
        Ok(Self { control: Some(control), clients: listeners.collect::<Result<_>>()? })
    }

    /// Drops the sockets without removing their files, because another process has taken them over.
    pub(crate) fn leave(self) {
        self.control.into_iter().chain(self.clients).for_each(Listener::leave);
    }
}
