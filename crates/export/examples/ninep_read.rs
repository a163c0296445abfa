//! Reads a whole file over 9P, to compare servers.
//!
//! `ninep_read ADDRESS ANAME NAME BYTES-AT-ONCE REQUESTS-AT-ONCE`: prints bytes and seconds. It uses one connection,
//! like the kernel.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a measuring program")]

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::Instant;

use platter_export::ninep::wire::{HEADER_BYTES, Header, IO_HEADER_BYTES, Kind, NO_FID, VERSION};
use platter_image::{Error, IoContext, Result};

const MSIZE: u32 = 1 << 20;

struct Client {
    output: TcpStream,
    input: BufReader<TcpStream>,
}

impl Client {
    fn send(&mut self, kind: Kind, tag: u16, body: &[&[u8]]) -> Result<()> {
        let body = body.concat();
        let size = (HEADER_BYTES + body.len()) as u32;
        let message = [&size.to_le_bytes()[..], &[kind.0], &tag.to_le_bytes(), &body].concat();
        self.output.write_all(&message).context(|| "sending a request".into())
    }

    /// Receives the next reply. Returns its tag; `body` gets its body.
    fn receive(&mut self, kind: Kind, body: &mut Vec<u8>) -> Result<u16> {
        let mut header = [0; HEADER_BYTES];
        self.input.read_exact(&mut header).context(|| "receiving a reply".into())?;
        let header = Header::parse(&header);
        body.resize((header.size.min(MSIZE) as usize).saturating_sub(HEADER_BYTES), 0);
        self.input.read_exact(body).context(|| "receiving a reply".into())?;
        if header.kind != kind.reply() {
            return Err(Error::refused(format!("a request of kind {} failed: {body:?}", kind.0)));
        }
        Ok(header.tag)
    }

    fn ask(&mut self, kind: Kind, body: &[&[u8]]) -> Result<Vec<u8>> {
        self.send(kind, 0, body)?;
        let mut reply = Vec::new();
        self.receive(kind, &mut reply)?;
        Ok(reply)
    }
}

fn text(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_le_bytes()[..], bytes].concat()
}

fn read(address: &str, folder: &str, name: &str, bytes_at_once: u32, requests: u16) -> Result<()> {
    let output = TcpStream::connect(address).context(|| format!("{address}: connecting"))?;
    output.set_nodelay(true).context(|| "disabling delays of a connection".into())?;
    let input = output.try_clone().context(|| "copying a connection".into())?;
    let mut client = Client { output, input: BufReader::with_capacity(1 << 18, input) };
    let [root, file] = [0u32, 1].map(u32::to_le_bytes);
    let agreed = client.ask(Kind::VERSION, &[&MSIZE.to_le_bytes(), &text(VERSION)])?;
    let msize = agreed.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    if bytes_at_once.saturating_add(IO_HEADER_BYTES) > msize {
        return Err(Error::refused(format!("the server only accepts messages of {msize} bytes")));
    }
    let user = [&NO_FID.to_le_bytes()[..], &text(b"root"), &text(folder.as_bytes()), &[0; 4]].concat();
    client.ask(Kind::ATTACH, &[&root, &user])?;
    let names: Vec<Vec<u8>> = name.split('/').map(|name| text(name.as_bytes())).collect();
    let count = (names.len() as u16).to_le_bytes();
    client.ask(Kind::WALK, &[&root, &file, &count, &names.concat()])?;
    client.ask(Kind::OPEN, &[&file, &[0; 4]])?;
    let start = Instant::now();
    let (mut offset, mut received, mut in_flight, mut body) = (0u64, 0u64, 0, Vec::new());
    let mut is_over = false;
    for tag in 0..requests {
        client.send(Kind::READ, tag, &[&file, &offset.to_le_bytes(), &bytes_at_once.to_le_bytes()])?;
        (offset, in_flight) = (offset + u64::from(bytes_at_once), in_flight + 1);
    }
    while in_flight > 0 {
        let tag = client.receive(Kind::READ, &mut body)?;
        let count = body.len().saturating_sub(4) as u64;
        (received, in_flight, is_over) = (received + count, in_flight - 1, is_over || count == 0);
        if !is_over {
            client.send(Kind::READ, tag, &[&file, &offset.to_le_bytes(), &bytes_at_once.to_le_bytes()])?;
            (offset, in_flight) = (offset + u64::from(bytes_at_once), in_flight + 1);
        }
    }
    println!("{received} {:.3}", start.elapsed().as_secs_f64());
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.as_slice() {
        [address, folder, name, bytes, requests] => match (bytes.parse(), requests.parse()) {
            (Ok(bytes), Ok(requests)) => read(address, folder, name, bytes, requests),
            _ => Err(Error::refused("BYTES-AT-ONCE and REQUESTS-AT-ONCE must be numbers")),
        },
        _ => Err(Error::refused("usage: ninep_read ADDRESS ANAME NAME BYTES-AT-ONCE REQUESTS-AT-ONCE")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:?}");
            ExitCode::FAILURE
        }
    }
}
