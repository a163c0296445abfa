//! Common 9P clients: those of diod. A test whose program is not installed reports that and passes.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use platter_export::ninep::NinepOptions;
use platter_export::tree::{ROOT, Tree};

use crate::memory_tree::Fault;
use crate::running_server::{RunningServer, options};

fn program(name: &str) -> Option<PathBuf> {
    let found = ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"]
        .map(|folder| PathBuf::from(folder).join(name))
        .into_iter()
        .find(|path| path.exists());
    if found.is_none() {
        println!("skipped: no {name}");
    }
    found
}

/// Runs a client on a server's TCP port.
fn run(program: &PathBuf, server: &RunningServer, arguments: &[&str]) -> Output {
    let address = server.tcp_address.unwrap().to_string();
    Command::new(program).args(["--server", &address]).args(arguments).output().unwrap()
}

fn success(program: &PathBuf, server: &RunningServer, arguments: &[&str]) -> Vec<u8> {
    let output = run(program, server, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program:?} {arguments:?}: {errors}");
    output.stdout
}

#[test]
fn diodcat() {
    let Some(diodcat) = program("diodcat") else { return };
    let server = RunningServer::tcp();
    assert!(success(&diodcat, &server, &["-a", "/", "fixed"]) == server.tree.contents(ROOT, "fixed"));
    let disk = success(&diodcat, &server, &["-a", "/lab", "disk"]);
    assert!(disk == crate::memory_tree::pattern(0, 3 << 20));
    let small = success(&diodcat, &server, &["-m", "4096", "-a", "", "lab/disk"]);
    assert!(small == disk);
    for (name, error) in [("nothing", "No such file"), ("damaged", "Input/output error")] {
        let failed = run(&diodcat, &server, &["-a", "/", name]);
        assert!(!failed.status.success());
        let said = String::from_utf8_lossy(&failed.stderr).into_owned();
        assert!(said.contains(error), "{said}");
    }
}

#[test]
fn diodls() {
    let Some(diodls) = program("diodls") else { return };
    let server = RunningServer::tcp();
    let names = |arguments: &[&str]| {
        let said = String::from_utf8(success(&diodls, &server, arguments)).unwrap();
        let mut names: Vec<String> = said.split_whitespace().map(str::to_owned).collect();
        names.sort();
        names
    };
    let root = names(&["-a", "/"]);
    assert_eq!(
        root.iter().filter(|name| !name.starts_with('.')).map(String::as_str).collect::<Vec<_>>(),
        ["damaged", "fixed", "full", "gated", "lab", "slow", "unclosable"]
    );
    let long = String::from_utf8(success(&diodls, &server, &["-l", "-a", "/"])).unwrap();
    assert!(long.contains("-r--r--r--") && long.contains("100000"), "{long}");
}

#[test]
fn diodload() {
    let Some(diodload) = program("diodload") else { return };
    let server = RunningServer::tcp();
    // It reads and writes two files with these names, as diod serves them.
    let ctl = server.tree.make_directory(ROOT, "ctl").unwrap().id;
    for name in ["zero", "null"] {
        server.tree.add(ctl, name, 1 << 20, Fault::None, false);
    }
    let output = run(&diodload, &server, &["-r", "1", "-n", "4"]);
    let said =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success() && !said.contains("error") && !said.contains(" 0 ops/s"), "{said}");
}

/// Runs a TCP client as this user. Returns the number of bytes of the first reply, if there is one.
fn heard_by(user: u32, server: &RunningServer) -> Option<usize> {
    const SCRIPT: &str = "
import socket, struct, sys
client = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
try:
    client.sendall(struct.pack('<IBHIH', 21, 100, 0xFFFF, 65536, 8) + b'9P2000.L')
    print(len(client.recv(100)))
except ConnectionError:
    print(0)
";
    let python = program("python3")?;
    let port = server.tcp_address.unwrap().port().to_string();
    let output = Command::new(python).args(["-c", SCRIPT, &port]).uid(user).gid(user).output().unwrap();
    Some(String::from_utf8(output.stdout).unwrap().trim().parse().unwrap())
}

#[test]
fn another_user_of_this_machine_is_rejected() {
    const OTHER: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        println!("skipped: not root");
        return;
    }
    let server = RunningServer::tcp();
    let Some(own) = heard_by(0, &server) else { return };
    assert_eq!(own, 21, "root gets a reply");
    assert_eq!(heard_by(OTHER, &server), Some(0));
    assert!(server.wait_for("Disconnected { connection: 2").contains("user 65534"));
    let open = RunningServer::tcp_with(NinepOptions { insecure_loopback: true, ..options() });
    assert_eq!(heard_by(OTHER, &open), Some(21), "unless all users are allowed");
}
