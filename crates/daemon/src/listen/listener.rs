//! A socket that listens: a unix socket whose file only its owner may open, or a TCP port.
//!
//! Owns the socket's file: one that somebody answers on is never replaced, and it is removed at the end unless somebody else
//! has put another one there.

use std::fs::{self, Metadata};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use platter_image::{Error, IoContext, Result};
use rustix::fs::{Mode, fchmod};
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// Clients that wait to be taken.
const BACKLOG: i32 = 1024;

/// A socket that listens. Must be made inside the runtime.
pub(crate) enum Listener {
    Unix(UnixListener, #[expect(dead_code, reason = "removes the file when it is dropped")] SocketFile),
    Tcp(TcpListener),
}

/// A client that was taken.
pub(crate) enum Client {
    Unix(UnixStream),
    /// And the address it comes from.
    Tcp(TcpStream, IpAddr),
}

/// The file of a unix socket.
pub(crate) struct SocketFile {
    path: PathBuf,
    metadata: Metadata,
}

impl Listener {
    /// Listens at `path`. A socket there on which nobody answers is replaced.
    ///
    /// # Errors
    /// `Refused` when somebody answers there, or it is no socket; `Io`.
    pub(crate) fn unix(path: &Path) -> Result<Self> {
        let doing = |what: &'static str| move || format!("{}: {what}", path.display());
        let address = SockAddr::unix(path).context(doing("as a socket's name"))?;
        remove_stale(path, &address)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).context(doing("opening a socket"))?;
        // The mode of a socket before it is bound is that of its file: there is no moment in which others may connect.
        fchmod(&socket, Mode::RUSR | Mode::WUSR)
            .map_err(io::Error::from)
            .context(doing("setting the mode of a socket"))?;
        socket.bind(&address).context(doing("making a socket"))?;
        let metadata = fs::symlink_metadata(path).context(doing("looking at it"))?;
        let file = SocketFile { path: path.to_owned(), metadata };
        listen(&socket).context(doing("listening"))?;
        let listener = UnixListener::from_std(socket.into()).context(doing("waiting for clients"))?;
        Ok(Self::Unix(listener, file))
    }

    /// Listens at a TCP address; port 0 takes any that is free.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn tcp(address: SocketAddr) -> Result<Self> {
        let doing = |what: &'static str| move || format!("{address}: {what}");
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)
            .context(doing("opening a TCP socket"))?;
        socket.set_reuse_address(true).context(doing("making it reusable"))?;
        socket.bind(&address.into()).context(doing("taking it"))?;
        listen(&socket).context(doing("listening"))?;
        Ok(Self::Tcp(TcpListener::from_std(socket.into()).context(doing("waiting for clients"))?))
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
                // Answers are written whole: waiting to join them helps nobody.
                stream.set_nodelay(true)?;
                Ok(Client::Tcp(stream, address.ip()))
            }
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|now| (now.dev(), now.ino()) == (self.metadata.dev(), self.metadata.ino()));
        if is_ours {
            // If it stays, the next server finds it stale.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn listen(socket: &Socket) -> io::Result<()> {
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)
}

fn remove_stale(path: &Path, address: &SockAddr) -> Result<()> {
    let name = || path.display();
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Ok(metadata) if metadata.file_type().is_socket() => {}
        Ok(_) => return Err(Error::refused(format!("{}: there is something that is no socket", name()))),
        Err(error) => return Err(Error::io(format!("{}: looking at it", name()), error)),
    }
    let client = Socket::new(Domain::UNIX, Type::STREAM, None).context(|| "opening a unix socket".into())?;
    // A server that is busy makes a blocking client wait; this one hears that somebody is there.
    client.set_nonblocking(true).context(|| "making a socket non-blocking".into())?;
    match client.connect(address) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).context(|| format!("{}: removing a socket that nobody uses", name()))
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(Error::io(format!("{}: asking who is there", name()), error))
        }
        _ => Err(Error::refused(format!("{}: a server answers there already", name()))),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use platter_image::ErrorKind;

    use super::*;

    #[tokio::test]
    async fn only_the_owner_may_connect_and_a_live_socket_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = Listener::unix(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Listener::unix(&path).err().map(|error| error.kind()), Some(ErrorKind::Refused));
        drop(listener);
        assert!(!path.exists());
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        drop(Listener::unix(&path).unwrap());
        fs::write(&path, "precious").unwrap();
        assert!(Listener::unix(&path).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }
}
