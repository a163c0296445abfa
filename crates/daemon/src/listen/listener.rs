//! A listening socket in the async runtime.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use platter_image::{IoContext, Result};
use platter_transport::SocketFile;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// A listening socket. Must be created inside the runtime.
pub(crate) enum Listener {
    Unix(
        UnixListener,
        #[expect(dead_code, reason = "removes the file when it is dropped")] Option<SocketFile>,
    ),
    Tcp(TcpListener),
}

/// An accepted connection.
pub(crate) enum Client {
    Unix(UnixStream),
    /// With the client's address.
    Tcp(TcpStream, IpAddr),
}

impl Listener {
    /// As [`platter_transport::Listener::unix`].
    ///
    /// # Errors
    /// `Refused` when a server answers there, or the file is not a socket; `Io`.
    pub(crate) fn unix(path: &Path) -> Result<Self> {
        let (socket, file) = platter_transport::Listener::unix(path)?.into_parts();
        let listener = UnixListener::from_std(socket.into());
        Ok(Self::Unix(listener.context(|| format!("{}: listening", path.display()))?, file))
    }

    /// As [`platter_transport::Listener::tcp`].
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn tcp(address: SocketAddr) -> Result<Self> {
        let (socket, _) = platter_transport::Listener::tcp(address)?.into_parts();
        let listener = TcpListener::from_std(socket.into());
        Ok(Self::Tcp(listener.context(|| format!("{address}: listening"))?))
    }

    /// The TCP address, if it is one.
    pub(crate) fn tcp_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Unix(..) => None,
            Self::Tcp(listener) => listener.local_addr().ok(),
        }
    }

    /// The next client.
    pub(crate) async fn accept(&self) -> io::Result<Client> {
        match self {
            Self::Unix(listener, _) => Ok(Client::Unix(listener.accept().await?.0)),
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                // Responses are written whole, so delaying them to join packets gains nothing.
                stream.set_nodelay(true)?;
                Ok(Client::Tcp(stream, address.ip()))
            }
        }
    }
}
