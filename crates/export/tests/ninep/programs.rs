//! The clients that people use: those of diod. A test whose program is not installed says so and passes.

use std::path::PathBuf;
use std::process::{Command, Output};

use platter_export::tree::ROOT;

use crate::running_server::RunningServer;

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
    let port = server.tcp_address.unwrap().port().to_string();
    let command = ["--server", "127.0.0.1", "--port", &port, "--aname", "/"];
    Command::new(program).args(command).args(arguments).output().unwrap()
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
    assert!(success(&diodcat, &server, &["fixed"]) == server.tree.contents(ROOT, "fixed"));
    let disk = success(&diodcat, &server, &["lab/disk"]);
    assert!(disk == crate::memory_tree::pattern(0, 3 << 20));
    let small = success(&diodcat, &server, &["--msize", "4096", "lab/disk"]);
    assert!(small == disk);
    for (name, error) in [("nothing", "No such file"), ("damaged", "Input/output error")] {
        let failed = run(&diodcat, &server, &[name]);
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
    let root = names(&[]);
    assert_eq!(
        root.iter().filter(|name| !name.starts_with('.')).map(String::as_str).collect::<Vec<_>>(),
        ["damaged", "fixed", "full", "gated", "lab", "slow", "unclosable"]
    );
    let long = String::from_utf8(success(&diodls, &server, &["-l"])).unwrap();
    assert!(long.contains("-r--r--r--") && long.contains("100000"), "{long}");
}

#[test]
fn diodload() {
    let Some(diodload) = program("diodload") else { return };
    let server = RunningServer::tcp();
    success(&diodload, &server, &["--runtime", "1", "--numthreads", "4", "--numfiles", "2"]);
}
