//! A virtual machine that boots a disk without a screen until a marker: QEMU, started and ended here.

use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use platter_image::{Error, IoContext, Result};
use serde::{Deserialize, Serialize};

/// Interval of checks for the marker.
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// If the guest does not listen, a connection to its forwarded port is closed at once; one that stays open this long
/// was accepted.
const PORT_HOLDS: Duration = Duration::from_millis(1500);
/// Most bytes of a console line that are examined.
const LINE_LENGTH_MAX: u64 = 64 << 10;
/// Lines of the console that are shown when a boot fails.
const LINES_SHOWN: usize = 8;

/// What ends a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Marker {
    /// The guest prints this text on its serial console.
    Serial(String),
    /// The guest accepts connections at this TCP port.
    Port(u16),
    /// Nothing is read for this many seconds.
    Quiet(u64),
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Serial(text) => write!(f, "serial:{text}"),
            Self::Port(port) => write!(f, "port:{port}"),
            Self::Quiet(seconds) => write!(f, "quiet:{seconds}"),
        }
    }
}

impl FromStr for Marker {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refused = || {
            Error::refused(format!("{text:?} is not a marker: use serial:TEXT, port:NUMBER or quiet:SECONDS"))
        };
        match text.split_once(':') {
            Some(("serial", text)) if !text.is_empty() => Ok(Self::Serial(text.to_owned())),
            Some(("port", port)) => {
                let port = port.parse().ok().filter(|port| *port > 0);
                Ok(Self::Port(port.ok_or_else(refused)?))
            }
            Some(("quiet", seconds)) => {
                let seconds = seconds.parse().ok().filter(|seconds| (1..=86_400).contains(seconds));
                Ok(Self::Quiet(seconds.ok_or_else(refused)?))
            }
            _ => Err(refused()),
        }
    }
}

impl TryFrom<String> for Marker {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Marker> for String {
    fn from(marker: Marker) -> Self {
        marker.to_string()
    }
}

/// How the guest's instructions are executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accelerator {
    /// By the processor if available, otherwise emulated.
    #[default]
    Auto,
    /// By the processor.
    Kvm,
    /// Emulated: at least ten times slower.
    Tcg,
}

/// A machine to boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Its memory in MiB.
    pub memory_mib: u32,
    /// What ends the recording.
    pub until: Marker,
    /// Time limit in seconds.
    pub timeout_seconds: u64,
    /// How it is executed.
    pub accelerator: Accelerator,
    /// The program: `qemu-system-x86_64`.
    pub program: String,
    /// More arguments for it.
    pub arguments: Vec<String>,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            memory_mib: 1024,
            until: Marker::Quiet(10),
            timeout_seconds: 600,
            accelerator: Accelerator::Auto,
            program: "qemu-system-x86_64".into(),
            arguments: Vec::new(),
        }
    }
}

/// The result of a boot.
#[derive(Clone, Debug)]
pub(super) struct Booted {
    pub(super) duration: Duration,
    /// How it was executed.
    pub(super) accelerator: &'static str,
    /// The command line.
    pub(super) command: String,
}

/// A process that is killed when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Machine {
    /// Boots the disk at this NBD address until the marker, and ends the machine. `reads` returns the number of reads
    /// so far.
    ///
    /// # Errors
    /// `Missing` when the program does not exist; `Refused` when the marker did not appear in time, or the machine
    /// ended before; `Io`.
    pub(super) fn boot(&self, disk: &str, reads: &dyn Fn() -> u64, stop: &AtomicBool) -> Result<Booted> {
        let accelerator = match self.accelerator {
            Accelerator::Kvm => "kvm",
            Accelerator::Tcg => "tcg",
            Accelerator::Auto if can_open(Path::new("/dev/kvm")) => "kvm",
            Accelerator::Auto => "tcg",
        };
        let port = match self.until {
            Marker::Port(guest) => Some((free_port()?, guest)),
            _ => None,
        };
        let arguments = self.arguments_for(accelerator, disk, port);
        let mut command = Command::new(&self.program);
        command.args(&arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut machine = Running(command.spawn().context(|| format!("starting {}", self.program))?);
        let console = console_of(&mut machine.0)?;
        let began = Instant::now();
        self.wait(&mut machine.0, &console, port.map(|(host, _)| host), reads, stop)?;
        let shown = std::iter::once(&self.program).chain(&arguments).cloned().collect::<Vec<_>>().join(" ");
        Ok(Booted { duration: began.elapsed(), accelerator, command: shown })
    }

    fn arguments_for(&self, accelerator: &str, disk: &str, port: Option<(u16, u16)>) -> Vec<String> {
        // Without cmpxchg16b, because some emulations of it set wrong flags, which crashes guests at random.
        let cpu = if accelerator == "kvm" { "host" } else { "qemu64,-cx16" };
        let memory = self.memory_mib.to_string();
        let drive = format!("file={disk},format=raw,if=virtio,cache=writeback");
        let mut arguments: Vec<String> = ["-accel", accelerator, "-cpu", cpu, "-M", "q35", "-m", &memory]
            .into_iter()
            .chain(["-nodefaults", "-no-reboot", "-nographic", "-serial", "stdio", "-drive", &drive])
            .map(str::to_owned)
            .collect();
        match port {
            None => arguments.extend(["-net", "none"].map(str::to_owned)),
            Some((host, guest)) => arguments.extend([
                "-netdev".to_owned(),
                format!("user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{host}-:{guest}"),
                "-device".to_owned(),
                "virtio-net-pci,netdev=net".to_owned(),
            ]),
        }
        arguments.extend(self.arguments.iter().cloned());
        arguments
    }

    fn wait(
        &self,
        machine: &mut Child,
        console: &Receiver<String>,
        port: Option<u16>,
        reads: &dyn Fn() -> u64,
        stop: &AtomicBool,
    ) -> Result<()> {
        let began = Instant::now();
        let (mut last_lines, mut seen_reads, mut quiet_since) = (Vec::new(), 0, began);
        loop {
            match console.recv_timeout(LOOK_PAUSE) {
                Ok(line) => {
                    if matches!(&self.until, Marker::Serial(text) if line.contains(text.as_str())) {
                        return Ok(());
                    }
                    if last_lines.len() == LINES_SHOWN {
                        last_lines.remove(0);
                    }
                    last_lines.push(line);
                }
                Err(RecvTimeoutError::Timeout) => {}
                // Its output has ended: it has ended, or soon will.
                Err(RecvTimeoutError::Disconnected) => thread::sleep(LOOK_PAUSE),
            }
            let now = reads();
            if now != seen_reads {
                (seen_reads, quiet_since) = (now, Instant::now());
            }
            let is_there = match self.until {
                Marker::Serial(_) => false,
                Marker::Port(_) => port.is_some_and(answers),
                Marker::Quiet(seconds) => {
                    seen_reads > 0 && quiet_since.elapsed() >= Duration::from_secs(seconds)
                }
            };
            if is_there {
                return Ok(());
            }
            let failed = |why: String| {
                let said = last_lines.join("\n");
                Err(Error::refused(format!("{why}; its last output:\n{said}")))
            };
            if stop.load(Ordering::Relaxed) {
                return Err(Error::refused("stopped before the machine reached its marker"));
            }
            if let Some(status) = machine.try_wait().context(|| format!("waiting for {}", self.program))? {
                return failed(format!("{} ended before {} ({status})", self.program, self.until));
            }
            if began.elapsed() > Duration::from_secs(self.timeout_seconds) {
                return failed(format!("{} did not appear within {} s", self.until, self.timeout_seconds));
            }
        }
    }
}

/// Returns the machine's output by lines, read by two threads that end with it.
///
/// # Errors
/// `Io` when a thread cannot be started.
fn console_of(machine: &mut Child) -> Result<Receiver<String>> {
    let (lines_out, lines) = channel();
    let printed: Vec<Box<dyn Read + Send>> = [
        machine.stdout.take().map(|out| Box::new(out) as Box<dyn Read + Send>),
        machine.stderr.take().map(|out| Box::new(out) as Box<dyn Read + Send>),
    ]
    .into_iter()
    .flatten()
    .collect();
    for stream in printed {
        let lines_out = lines_out.clone();
        let read = move || {
            let mut stream = BufReader::new(stream);
            let mut line = Vec::new();
            // A prompt has no line break: each new part is sent together with the line so far.
            while let Ok(count) = read_some(&mut stream, &mut line) {
                if count == 0 || lines_out.send(String::from_utf8_lossy(&line).trim_end().to_owned()).is_err()
                {
                    break;
                }
                if line.last() == Some(&b'\n') || line.len() as u64 > LINE_LENGTH_MAX {
                    line.clear();
                }
            }
        };
        thread::Builder::new().spawn(read).context(|| "starting a thread".into())?;
    }
    Ok(lines)
}

/// Appends the available part of a line, at least one byte unless the stream ends.
fn read_some(stream: &mut impl BufRead, line: &mut Vec<u8>) -> std::io::Result<usize> {
    let bytes = stream.fill_buf()?;
    let count = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
    line.extend_from_slice(&bytes[..count]);
    stream.consume(count);
    Ok(count)
}

fn can_open(device: &Path) -> bool {
    std::fs::OpenOptions::new().read(true).write(true).open(device).is_ok()
}

/// Returns a currently free port of this machine.
fn free_port() -> Result<u16> {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context(|| "looking for a free port".to_owned())?;
    Ok(listener.local_addr().context(|| "looking for a free port".to_owned())?.port())
}

/// Whether the guest behind a forwarded port accepts connections: the forwarder always does, and closes them again if
/// the guest does not.
fn answers(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return false };
    if stream.set_read_timeout(Some(PORT_HOLDS)).is_err() {
        return false;
    }
    match stream.read(&mut [0]) {
        Ok(count) => count > 0,
        Err(error) => matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_printed_in_the_form_in_which_they_are_parsed() {
        for text in ["serial:login: now", "port:22", "quiet:10"] {
            assert_eq!(text.parse::<Marker>().unwrap().to_string(), text);
        }
        for bad in ["", "serial:", "port:0", "port:70000", "quiet:0", "quiet:x", "other:1", "port"] {
            assert!(bad.parse::<Marker>().is_err(), "{bad}");
        }
    }

    fn machine(script: &str, until: &str) -> Machine {
        let folder = std::env::temp_dir();
        Machine {
            until: until.parse().unwrap(),
            timeout_seconds: 20,
            program: "/bin/sh".into(),
            accelerator: Accelerator::Tcg,
            arguments: vec![script.into(), folder.display().to_string()],
            ..Machine::default()
        }
    }

    /// A shell rejects the option `-accel` and fails: the output of a machine that ends early is reported.
    #[test]
    fn a_machine_that_ends_before_its_marker_is_reported() {
        let error = machine("x", "serial:x").boot("nbd:nowhere", &|| 0, &AtomicBool::new(false)).unwrap_err();
        assert!(error.to_string().contains("ended before serial:x"), "{error}");
        let absent = Machine { program: "/nonexistent/qemu".into(), ..machine("x", "quiet:1") };
        assert!(absent.boot("nbd:nowhere", &|| 0, &AtomicBool::new(false)).is_err());
    }

    #[test]
    fn a_console_is_read_as_it_is_written_even_without_line_breaks() {
        let mut child = Command::new("/bin/sh")
            .args(["-c", "printf 'one\\ntwo'; printf ' three: '; exec sleep 5"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map(Running)
            .unwrap();
        let console = console_of(&mut child.0).unwrap();
        let mut said = Vec::new();
        while !said.iter().any(|line: &String| line.contains("two three:")) {
            said.push(console.recv_timeout(Duration::from_secs(4)).unwrap());
        }
        assert_eq!(said[0], "one");
    }
}
