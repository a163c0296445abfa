//! More silent connections than the server has places for, beside clients that request a disk.

use std::io::Read;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use platter_export::nbd::NbdOptions;

use crate::memory::{Disks, Memory};
use crate::raw_client::{FLUSH, RawClient};
use crate::running_server::RunningServer;

/// Far more than a server accepts from unknown clients.
const CROWD: usize = 300;

fn serve(options: NbdOptions) -> RunningServer {
    RunningServer::start_tcp(Disks(vec![("disk", Arc::new(Memory::new(1 << 20, &[])))]), options)
}

fn options() -> NbdOptions {
    NbdOptions {
        connections_max: 2,
        // Looking up the owner of each connection in the kernel would dominate the test's time.
        insecure_loopback: true,
        farewell_time: Duration::from_millis(100),
        ..NbdOptions::default()
    }
}

fn open(server: &RunningServer) -> RawClient {
    let mut client = RawClient::connect_tcp(server.tcp_address.unwrap());
    client.go("disk");
    client
}

fn crowd(server: &RunningServer) -> Vec<TcpStream> {
    (0..CROWD).map(|_| TcpStream::connect(server.tcp_address.unwrap()).unwrap()).collect()
}

/// Whether the server ends the connection, possibly after some data.
fn ends(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    match stream.read_to_end(&mut Vec::new()) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn idle_connections_lock_nobody_out() {
    let server = serve(options());
    let mut before = open(&server);
    let mut idle = crowd(&server);
    let mut beside = open(&server);
    assert_eq!(before.error_of(FLUSH, 0, 0, 0), 0);
    assert_eq!(beside.error_of(FLUSH, 0, 0, 0), 0);
    assert!(ends(&mut idle[0]), "the oldest was displaced by another one");
    server.wait_for("other clients needed its place");
    // Served clients have places of their own, which are limited as well.
    let mut third = RawClient::connect_tcp(server.tcp_address.unwrap());
    third.send_option(7, &crate::raw_client::info_request("disk", &[]));
    let mut stream = TcpStream::from(std::os::fd::OwnedFd::from(third.stream));
    assert!(ends(&mut stream));
    server.wait_for("the limit of 2 clients is reached");
    drop(before);
    server.wait_for("Disconnected { connection: 1,");
    assert_eq!(open(&server).error_of(FLUSH, 0, 0, 0), 0);
}

#[test]
fn a_silent_connection_is_closed() {
    let server = serve(NbdOptions { handshake_time: Duration::from_millis(500), ..options() });
    let mut idle: Vec<TcpStream> =
        (0..3).map(|_| TcpStream::connect(server.tcp_address.unwrap()).unwrap()).collect();
    assert!(idle.iter_mut().all(ends));
    let mut client = open(&server);
    std::thread::sleep(Duration::from_millis(1000));
    assert_eq!(client.error_of(FLUSH, 0, 0, 0), 0, "a served connection stays");
}
