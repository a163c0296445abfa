//! TLS: accepted and rejected clients, with common NBD clients; and what is sent before TLS begins.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use platter_export::nbd::{NbdOptions, NbdServer, NbdTls};
use platter_image::{ErrorKind, Extent};
use platter_transport::Listener;
use tempfile::TempDir;

use crate::memory::{Disks, Memory};
use crate::raw_client::{ACK, RawClient, info_request};
use crate::running_server::RunningServer;

const TLS_REQUIRED: u32 = (1 << 31) + 5;
const INVALID: u32 = (1 << 31) + 3;
const LENGTH: usize = 8 << 20;

/// Creates `ca-cert.pem`, and certificates of it for `server`, `client` and `revoked`, in the working directory.
const MAKE_CERTIFICATES: &str = r#"
set -e
key() { openssl genpkey -quiet -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1-key.pem"; }
key ca
openssl req -x509 -new -key ca-key.pem -days 30 -subj "/CN=test authority" -out ca-cert.pem
for name in server client revoked; do
	key $name
	openssl req -new -key $name-key.pem -subj "/CN=$name" -out $name.csr
	printf 'basicConstraints=CA:FALSE\nsubjectAltName=DNS:localhost,IP:127.0.0.1\n' >extensions
	openssl x509 -req -in $name.csr -CA ca-cert.pem -CAkey ca-key.pem -CAcreateserial -days 30 \
		-extfile extensions -out $name-cert.pem 2>/dev/null
done
printf '[ca]\ndefault_ca=it\n[it]\ndatabase=index\ndefault_md=sha256\ncrlnumber=number\n' >configuration
: >index
echo 01 >number
openssl ca -config configuration -keyfile ca-key.pem -cert ca-cert.pem -revoke revoked-cert.pem 2>/dev/null
openssl ca -config configuration -keyfile ca-key.pem -cert ca-cert.pem -gencrl -crldays 30 -out list.pem 2>/dev/null
"#;

/// A folder of certificates.
struct Certificates(TempDir);

impl Certificates {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let made = Command::new("sh").args(["-c", MAKE_CERTIFICATES]).current_dir(&folder).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Self(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn options(&self, verify_peer: bool) -> NbdOptions {
        NbdOptions {
            tls: Some(NbdTls::open(self.path(), verify_peer).unwrap()),
            farewell_time: Duration::from_millis(100),
            ..NbdOptions::default()
        }
    }

    /// Returns a folder with what a client of this name has.
    fn of_client(&self, name: &str) -> PathBuf {
        let folder = self.path().join(format!("{name}-folder"));
        fs::create_dir(&folder).unwrap();
        for (from, to) in [
            ("ca-cert.pem", "ca-cert.pem"),
            (&format!("{name}-cert.pem"), "client-cert.pem"),
            (&format!("{name}-key.pem"), "client-key.pem"),
        ] {
            fs::copy(self.path().join(from), folder.join(to)).unwrap();
        }
        folder
    }
}

fn disk() -> Arc<Memory> {
    Arc::new(Memory::new(LENGTH, &[Extent::new(1 << 20, 2 << 20)]))
}

fn serve(options: NbdOptions) -> RunningServer {
    RunningServer::start(Disks(vec![("disk", disk())]), options)
}

fn uri(server: &RunningServer, folder: &Path) -> String {
    format!("nbds+unix:///disk?socket={}&tls-certificates={}", server.path().display(), folder.display())
}

fn run(program: &str, arguments: &[&str]) -> Option<Output> {
    match Command::new(program).args(arguments).output() {
        Ok(output) => Some(output),
        Err(_) => {
            println!("skipped: no {program}");
            None
        }
    }
}

fn succeeds(program: &str, arguments: &[&str]) {
    if let Some(output) = run(program, arguments) {
        assert!(
            output.status.success(),
            "{program} {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

fn fails(program: &str, arguments: &[&str]) {
    if let Some(output) = run(program, arguments) {
        assert!(!output.status.success(), "{program} {arguments:?}");
    }
}

#[test]
fn a_client_with_a_certificate_reads_and_writes() {
    let certificates = Certificates::new();
    let folder = certificates.of_client("client");
    let (server, target) = (serve(certificates.options(true)), Arc::new(Memory::new(LENGTH, &[])));
    let other = RunningServer::start(Disks(vec![("disk", Arc::clone(&target))]), certificates.options(true));
    succeeds("nbdinfo", &[&uri(&server, &folder)]);
    let copy = folder.join("copy");
    succeeds("nbdcopy", &[&uri(&server, &folder), copy.to_str().unwrap()]);
    assert!(fs::read(&copy).unwrap() == disk().contents());
    succeeds("nbdcopy", &[copy.to_str().unwrap(), &uri(&other, &folder)]);
    assert!(target.contents() == disk().contents());
}

#[test]
fn tls_over_tcp_until_the_end() {
    let certificates = Certificates::new();
    let folder = certificates.of_client("client");
    // With TLS, a server may listen on all addresses.
    let listener = Listener::tcp(SocketAddr::from(([0, 0, 0, 0], 0))).unwrap();
    let port = listener.tcp_address().unwrap().port();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let disks = Arc::new(Disks(vec![("disk", disk())]));
        let server = scope.spawn(|| NbdServer::serve(listener, disks, certificates.options(true), &stop));
        let end = EndOfTest(&stop);
        let uri = format!("nbds://127.0.0.1:{port}/disk?tls-certificates={}", folder.display());
        succeeds("nbdinfo", &[&uri]);
        let credentials =
            format!("tls-creds-x509,id=tls,endpoint=client,verify-peer=on,dir={}", folder.display());
        let options =
            format!("driver=nbd,host=127.0.0.1,port={port},export=disk,tls-creds=tls,tls-hostname=localhost");
        succeeds("qemu-img", &["info", "--object", &credentials, "--image-opts", &options]);
        let mut plain = TcpStream::connect(("127.0.0.1", port)).unwrap();
        plain.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        plain.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\x04disk").unwrap();
        let mut said = Vec::new();
        plain.read_to_end(&mut said).unwrap();
        assert_eq!(said, b"NBDMAGICIHAVEOPT\0\x03", "the old negotiation has no error reply");
        drop(end);
        server.join().unwrap().unwrap();
    });
}

/// Ends the server, even when the test fails.
struct EndOfTest<'a>(&'a AtomicBool);

impl Drop for EndOfTest<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn clients_without_a_valid_certificate_are_refused() {
    let (certificates, others) = (Certificates::new(), Certificates::new());
    let stranger = others.of_client("client");
    // The client trusts the server, but the server does not trust the client.
    fs::copy(certificates.path().join("ca-cert.pem"), stranger.join("ca-cert.pem")).unwrap();
    let nobody = certificates.of_client("revoked");
    fs::remove_file(nobody.join("client-cert.pem")).unwrap();
    fs::remove_file(nobody.join("client-key.pem")).unwrap();
    let server = serve(certificates.options(true));
    for folder in [&stranger, &nobody] {
        fails("nbdinfo", &[&uri(&server, folder)]);
        fails("nbdcopy", &[&uri(&server, folder), folder.join("copy").to_str().unwrap()]);
    }
    server.wait_for("kind: Refused, context: \"the client's certificate");
    let open = serve(certificates.options(false));
    for folder in [&stranger, &nobody] {
        succeeds("nbdinfo", &[&uri(&open, folder)]);
    }
}

#[test]
fn a_certificate_can_be_revoked() {
    let certificates = Certificates::new();
    let (good, revoked) = (certificates.of_client("client"), certificates.of_client("revoked"));
    succeeds("nbdinfo", &[&uri(&serve(certificates.options(true)), &revoked)]);
    fs::copy(certificates.path().join("list.pem"), certificates.path().join("ca-crl.pem")).unwrap();
    let server = serve(certificates.options(true));
    succeeds("nbdinfo", &[&uri(&server, &good)]);
    fails("nbdinfo", &[&uri(&server, &revoked)]);
}

#[test]
fn nothing_is_revealed_before_tls() {
    let server = serve(Certificates::new().options(true));
    fails("nbdinfo", &[&server.uri()]);
    fails("qemu-img", &["info", &server.uri()]);
    let mut client = server.connect();
    for (code, data) in
        [(3, Vec::new()), (6, info_request("disk", &[])), (7, info_request("disk", &[])), (8, Vec::new())]
    {
        let replies = client.option(code, &data);
        assert_eq!((replies.len(), replies[0].0), (1, TLS_REQUIRED), "option {code}");
    }
    assert_eq!(client.option(5, b"x")[0].0, INVALID);
    assert_eq!(client.option(2, b""), [(ACK, Vec::new())]);
    assert!(client.is_closed());
}

#[test]
fn a_failed_tls_handshake_ends_the_connection() {
    let options =
        NbdOptions { handshake_time: Duration::from_millis(500), ..Certificates::new().options(true) };
    let server = serve(options);
    let mut client = server.connect();
    assert_eq!(client.option(5, b""), [(ACK, Vec::new())]);
    client.send(&[b'G'; 4000]);
    assert!(ends(&mut client.stream));
    server.wait_for("TLS handshake failed");
    // Plain bytes after the STARTTLS option are no option: an attacker may have injected them.
    let mut client = server.connect();
    client.send(&[b"IHAVEOPT\0\0\0\x05\0\0\0\0".as_slice(), b"IHAVEOPT\0\0\0\x03\0\0\0\0"].concat());
    client.bytes(20);
    assert!(ends(&mut client.stream));
    // Neither silence nor a trickle of bytes extends the time.
    let mut silent = server.connect();
    silent.option(5, b"");
    let mut trickle = server.connect();
    trickle.option(5, b"");
    for byte in [0x16, 3, 1] {
        trickle.send(&[byte]);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(silent.is_closed() && trickle.is_closed());
    server.wait_for("too long to negotiate");
}

/// Whether the server ends the connection, with an alert or without.
fn ends(stream: &mut UnixStream) -> bool {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => rest.len() < 100,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn certificates_that_cannot_be_used_are_named() {
    let certificates = Certificates::new();
    let key = certificates.path().join("server-key.pem");
    let kind_of = || NbdTls::open(certificates.path(), true).unwrap_err();
    fs::copy(certificates.path().join("client-key.pem"), &key).unwrap();
    assert_eq!(kind_of().kind(), ErrorKind::Refused, "the key belongs to another certificate");
    fs::write(&key, "-----BEGIN NOTHING-----").unwrap();
    assert_eq!(kind_of().kind(), ErrorKind::Refused);
    fs::remove_file(&key).unwrap();
    assert_eq!(kind_of().kind(), ErrorKind::Missing);
    assert!(kind_of().to_string().contains("server-key.pem"));
}

#[test]
fn without_certificates_there_is_no_tls() {
    let server = RunningServer::of(&disk());
    let mut client: RawClient = server.connect();
    assert_eq!(client.option(5, b"")[0].0, (1 << 31) + 1);
    client.go("disk");
}
