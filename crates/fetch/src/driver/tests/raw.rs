//! A minimal peer that performs handshake and greeting correctly, and then does what the test wants.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use platter_cast::peer::{AskMessage, Hello, NodeId, PeerMessage, PeerStream};
use platter_image::Domain;
use platter_transport::{PEER_NAME, peer_client, peer_server};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, ServerConnection, StreamOwned};

use super::*;

/// Its reaction to a request: bytes to send, and whether it continues.
pub(super) type Answer = dyn Fn(&AskMessage) -> (Vec<u8>, bool) + Send + Sync;

pub(super) struct RawPeer {
    pub(super) known: KnownNode,
    pub(super) folder: tempfile::TempDir,
}

pub(super) fn hello(node: NodeId) -> Vec<u8> {
    PeerMessage::Hello(Hello { group: GROUP, domain: Domain::SHARED, node }).to_bytes()
}

impl RawPeer {
    /// Accepts all nodes in `friends`, and answers each request.
    pub(super) fn start(friends: &[KnownNode], answer: Arc<Answer>) -> Self {
        let folder = new_folder();
        let identity = identity_in(&folder);
        let directory = Directory::open(folder.path().join("peers.json"), GROUP, identity.id);
        directory.learn(friends).1.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().ok();
        let (id, fingerprint) = (identity.id, identity.fingerprint());
        let config = peer_server(&identity.tls, Arc::new(directory)).unwrap();
        thread::spawn(move || {
            for socket in listener.incoming() {
                let connection = ServerConnection::new(config.clone()).unwrap();
                let (answer, socket) = (answer.clone(), socket.unwrap());
                thread::spawn(move || talk(StreamOwned::new(connection, socket), id, &*answer));
            }
        });
        Self { known: KnownNode { id, address, fingerprint }, folder }
    }
}

/// Sends a greeting, and answers requests until either side ends.
fn talk(mut stream: StreamOwned<ServerConnection, TcpStream>, id: NodeId, answer: &Answer) -> Option<()> {
    stream.write_all(&hello(id)).ok()?;
    let (mut messages, mut bytes) = (PeerStream::default(), [0; 4096]);
    loop {
        let length = stream.read(&mut bytes).ok().filter(|length| *length > 0)?;
        messages.push(&bytes[..length]);
        while let Some(message) = messages.next_message().ok()? {
            let PeerMessage::Ask(ask) = message else { continue };
            let (said, goes_on) = answer(&ask);
            stream.write_all(&said).and_then(|()| stream.flush()).ok()?;
            if !goes_on {
                return None;
            }
        }
    }
}

/// Opens a connection to a node with this identity, and sends nothing.
pub(super) fn connect(
    identity: &Identity,
    to: &KnownNode,
) -> std::io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let config = peer_client(&identity.tls, to.fingerprint).unwrap();
    let name = ServerName::try_from(PEER_NAME).unwrap();
    let connection = ClientConnection::new(config, name).unwrap();
    let mut stream = StreamOwned::new(connection, TcpStream::connect(to.address.unwrap())?);
    stream.sock.set_read_timeout(Some(PATIENCE))?;
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(stream)
}
