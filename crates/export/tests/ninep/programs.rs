//! The clients that people use: those of diod. A test whose program is not installed says so and passes.

use std::path::PathBuf;
use std::process::{Command, Output};

use platter_export::tree::{ROOT, Tree};

use crate::memory_tree::Fault;
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
    // It reads and writes two files by these names, as diod has them.
    let ctl = server.tree.make_directory(ROOT, "ctl").unwrap().id;
    for name in ["zero", "null"] {
        server.tree.add(ctl, name, 1 << 20, Fault::None, false);
    }
    let output = run(&diodload, &server, &["-r", "1", "-n", "4"]);
    let said =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success() && !said.contains("error") && !said.contains(" 0 ops/s"), "{said}");
}
