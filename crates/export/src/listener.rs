//! Where clients come in: a unix socket or a TCP port.
//!
//! Owns the socket's file: only its owner may connect, one that somebody answers on is never replaced, and it is removed
//! at the end unless somebody else has put another one there.

use std::fs::{self, Metadata};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use platter_image::{Error, IoContext, Result};
use rustix::fs::{Mode, fchmod};
use socket2::{Domain, SockAddr, Socket, Type};

/// Clients that wait to be taken.
const BACKLOG: i32 = 128;

/// A socket that listens.
pub struct Listener {
    pub(crate) socket: Socket,
    file: Option<SocketFile>,
}

struct SocketFile {
    path: PathBuf,
    metadata: Metadata,
}

impl Listener {
    /// Listens at `path`. A socket there on which nobody answers is replaced.
    ///
    /// # Errors
    /// `Refused` when somebody answers there, or it is no socket; `Io`.
    pub fn unix(path: &Path) -> Result<Self> {
        let address = SockAddr::unix(path).context(|| format!("{}: as a socket's name", path.display()))?;
        remove_stale(path, &address)?;
        let socket =
            Socket::new(Domain::UNIX, Type::STREAM, None).context(|| "opening a unix socket".into())?;
        // The mode of a socket before it is bound is that of its file: there is no moment in which others may connect.
        fchmod(&socket, Mode::RUSR | Mode::WUSR)
            .map_err(io::Error::from)
            .context(|| "setting the mode of a unix socket".into())?;
        socket.bind(&address).context(|| format!("{}: making a socket", path.display()))?;
        let metadata = fs::symlink_metadata(path).context(|| format!("{}: looking at it", path.display()))?;
        let listener = Self { socket, file: Some(SocketFile { path: path.to_owned(), metadata }) };
        listener.listen(|| path.display().to_string())?;
        Ok(listener)
    }

    /// Listens at a TCP address; port 0 takes any that is free. Whether it may be one that other machines reach is for
    /// the server's options to say.
    ///
    /// # Errors
    /// `Io`.
    pub fn tcp(address: SocketAddr) -> Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)
            .context(|| "opening a TCP socket".into())?;
        socket.set_reuse_address(true).context(|| format!("{address}: making it reusable"))?;
        socket.bind(&address.into()).context(|| format!("{address}: taking it"))?;
        let listener = Self { socket, file: None };
        listener.listen(|| address.to_string())?;
        Ok(listener)
    }

    /// The TCP address, if it is one.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()?.as_socket()
    }

    fn listen(&self, name: impl Fn() -> String) -> Result<()> {
        self.socket.listen(BACKLOG).context(|| format!("{}: listening", name()))?;
        self.socket.set_nonblocking(true).context(|| format!("{}: making it non-blocking", name()))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let Some(SocketFile { path, metadata }) = &self.file else { return };
        let is_ours = fs::symlink_metadata(path)
            .is_ok_and(|now| (now.dev(), now.ino()) == (metadata.dev(), metadata.ino()));
        if is_ours {
            // If it stays, the next server finds it stale.
            let _ = fs::remove_file(path);
        }
    }
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
    use std::os::unix::net::UnixListener;

    use platter_image::ErrorKind;

    use super::*;

    #[test]
    fn only_the_owner_may_connect_and_the_file_goes_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = Listener::unix(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let other = UnixListener::bind(&path).unwrap();
        assert_eq!(Listener::unix(&path).err().map(|error| error.kind()), Some(ErrorKind::Refused));
        drop(other);
        assert!(path.exists());
        assert!(Listener::unix(&path).is_ok());
    }

    #[test]
    fn a_file_that_is_no_socket_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        fs::write(&path, "precious").unwrap();
        assert_eq!(Listener::unix(&path).err().map(|error| error.kind()), Some(ErrorKind::Refused));
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn another_servers_socket_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = Listener::unix(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        drop(listener);
        assert!(path.exists());
    }
}
