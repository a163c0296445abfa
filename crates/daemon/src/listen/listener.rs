//! A listening socket in the async runtime.

use std::io;
use std::net::IpAddr;

use platter_image::{IoContext, Result};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// A listening socket. Must be created inside the runtime.
pub(crate) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// An accepted connection.
pub(crate) enum Client {
    Unix(UnixStream),
    /// With the client's address.
    Tcp(TcpStream, IpAddr),
}

impl Listener {
    /// Accepts from a copy of that socket, whose owner keeps the socket's file.
    ///
    /// # Errors
    /// `Io` when there are too many open files.
    pub(crate) fn of(listener: &platter_transport::Listener) -> Result<Self> {
        let socket = listener.socket().try_clone().context(|| "duplicating a listening socket".into())?;
        let registered = match listener.tcp_address() {
            Some(_) => TcpListener::from_std(socket.into()).map(Self::Tcp),
            None => UnixListener::from_std(socket.into()).map(Self::Unix),
        };
        registered.context(|| "waiting for clients".into())
    }

    /// The next client.
    pub(crate) async fn accept(&self) -> io::Result<Client> {
        match self {
            Self::Unix(listener) => Ok(Client::Unix(listener.accept().await?.0)),
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                // Responses are written whole, so delaying them to join packets gains nothing.
                stream.set_nodelay(true)?;
                Ok(Client::Tcp(stream, address.ip()))
            }
        }
    }
}
