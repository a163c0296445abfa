//! A listening socket: a unix socket or a TCP port.
//!
//! Owns the socket's file: only its owner may connect. A file on which a server answers is never replaced. The file is
//! removed at the end, unless another server has replaced it meanwhile.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use platter_image::{Error, IoContext, Result};
use rustix::fs::{Mode, fchmod};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::parcel::Parcel;

/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// A listening socket, in non-blocking mode.
pub struct Listener {
    socket: Socket,
    file: Option<SocketFile>,
}

/// The file of a unix socket, removed when this is dropped.
struct SocketFile {
    path: PathBuf,
    /// Metadata of the file at creation, to recognize it; `None` when another process owns it.
    metadata: Option<Metadata>,
}

impl Listener {
    /// Listens at `path`. A socket file on which nobody answers is replaced.
    ///
    /// # Errors
    /// `Refused` when a server answers there, or the file is not a socket; `Io`.
    pub fn unix(path: &Path) -> Result<Self> {
        let address = SockAddr::unix(path).context(|| format!("{}: as a socket's name", path.display()))?;
        remove_stale(path, &address)?;
        let socket =
            Socket::new(Domain::UNIX, Type::STREAM, None).context(|| "opening a unix socket".into())?;
        // The file takes the mode that the socket has when it is bound, so others can never connect, not even briefly.
        fchmod(&socket, Mode::RUSR | Mode::WUSR)
            .map_err(io::Error::from)
            .context(|| "setting the mode of a unix socket".into())?;
        socket.bind(&address).context(|| format!("{}: making a socket", path.display()))?;
        let metadata = fs::symlink_metadata(path).context(|| format!("{}: looking at it", path.display()))?;
        let listener =
            Self { socket, file: Some(SocketFile { path: path.to_owned(), metadata: Some(metadata) }) };
        listener.listen(|| path.display().to_string())?;
        Ok(listener)
    }

    /// Listens at a TCP address; port 0 takes any free port. Whether other machines may reach it is the caller's decision.
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

    /// The socket.
    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// The TCP address, if it is one.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()?.as_socket()
    }

    /// Returns a copy for another process. Until this process calls [`Listener::leave`], both own the socket; new
    /// connections wait in its queue.
    ///
    /// # Errors
    /// `Io`.
    pub fn to_parcel(&self) -> Result<Parcel> {
        let socket = self.socket.try_clone().context(|| "duplicating a listening socket".into())?;
        let path = self.file.as_ref().map(|file| file.path.as_os_str().as_bytes());
        Ok(Parcel { bytes: path.unwrap_or_default().to_vec(), descriptors: vec![OwnedFd::from(socket)] })
    }

    /// Receives the result of [`Listener::to_parcel`].
    ///
    /// # Errors
    /// `Corrupt`; `Io` when the socket's file is gone.
    pub fn from_parcel(parcel: Parcel) -> Result<Self> {
        let [socket] = <[OwnedFd; 1]>::try_from(parcel.descriptors)
            .map_err(|_| Error::corrupt("a moved listener has one socket"))?;
        let path = (!parcel.bytes.is_empty()).then(|| PathBuf::from(OsString::from_vec(parcel.bytes)));
        let file = path.map(|path| {
            let metadata = fs::symlink_metadata(&path);
            let metadata = metadata.context(|| format!("{}: looking at it", path.display()))?;
            Ok(SocketFile { path, metadata: Some(metadata) })
        });
        Ok(Self { socket: socket.into(), file: file.transpose()? })
    }

    /// Stops listening in this process. Another process continues, and owns the socket's file.
    pub fn leave(mut self) {
        if let Some(file) = &mut self.file {
            file.metadata = None;
        }
    }

    fn listen(&self, name: impl Fn() -> String) -> Result<()> {
        self.socket.listen(BACKLOG).context(|| format!("{}: listening", name()))?;
        self.socket.set_nonblocking(true).context(|| format!("{}: making it non-blocking", name()))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let Some(metadata) = &self.metadata else { return };
        let is_ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|now| (now.dev(), now.ino()) == (metadata.dev(), metadata.ino()));
        if is_ours {
            // If this fails, the next server replaces it as stale.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn remove_stale(path: &Path, address: &SockAddr) -> Result<()> {
    let name = || path.display();
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Ok(metadata) if metadata.file_type().is_socket() => {}
        Ok(_) => return Err(Error::refused(format!("{}: this file is not a socket", name()))),
        Err(error) => return Err(Error::io(format!("{}: looking at it", name()), error)),
    }
    let client = Socket::new(Domain::UNIX, Type::STREAM, None).context(|| "opening a unix socket".into())?;
    // Non-blocking, so that a busy server's full backlog answers at once instead of making us wait.
    client.set_nonblocking(true).context(|| "making a socket non-blocking".into())?;
    match client.connect(address) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).context(|| format!("{}: removing an unused socket", name()))
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(Error::io(format!("{}: checking whether a server answers", name()), error))
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
    fn only_the_owner_may_connect_and_the_file_is_removed_at_the_end() {
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
    fn a_file_that_is_not_a_socket_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        fs::write(&path, "precious").unwrap();
        assert_eq!(Listener::unix(&path).err().map(|error| error.kind()), Some(ErrorKind::Refused));
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn the_socket_of_another_server_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = Listener::unix(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        drop(listener);
        assert!(path.exists());
    }
}
