//! More silent connections than the server has places for, beside clients that use the tree.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use platter_export::ninep::NinepOptions;

use crate::raw_client::RawClient;
use crate::running_server::{RunningServer, options};

/// Far more than a server accepts from unknown clients.
const CROWD: usize = 300;

/// Options that skip the lookup of each connection's owner, which would dominate the test's time.
fn open_to_all() -> NinepOptions {
    NinepOptions { insecure_loopback: true, ..options() }
}

fn attach(server: &RunningServer) -> RawClient {
    let mut client = RawClient::connect_tcp(server.tcp_address.unwrap());
    client.version(65_536);
    client.attach(0);
    client
}

fn connect(server: &RunningServer) -> TcpStream {
    TcpStream::connect(server.tcp_address.unwrap()).unwrap()
}

/// Whether the server ends the connection.
fn ends(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    match stream.read_to_end(&mut Vec::new()) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn idle_connections_lock_nobody_out() {
    let server = RunningServer::tcp_with(NinepOptions { connections_max: 2, ..open_to_all() });
    let mut before = attach(&server);
    let mut idle: Vec<TcpStream> = (0..CROWD).map(|_| connect(&server)).collect();
    let mut beside = attach(&server);
    assert_eq!(before.walk(0, 1, &["lab"]).error(), None);
    assert_eq!(beside.walk(0, 1, &["lab"]).error(), None);
    assert!(ends(&mut idle[0]), "the oldest was displaced by another one");
    server.wait_for("other clients needed its place");
}

/// Occasional bytes are not a negotiation.
#[test]
fn a_connection_that_negotiates_no_version_is_closed() {
    let server =
        RunningServer::tcp_with(NinepOptions { handshake_time: Duration::from_millis(500), ..open_to_all() });
    let mut slow = connect(&server);
    slow.write_all(&[19]).unwrap();
    assert!(ends(&mut slow));
    let mut client = attach(&server);
    std::thread::sleep(Duration::from_millis(1000));
    assert_eq!(client.walk(0, 1, &["lab"]).error(), None, "a served connection stays");
}
