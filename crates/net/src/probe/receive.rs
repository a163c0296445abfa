//! The loop of a probe's receiver.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use platter_cast::{ProbeReceiver, ProbeReceiverOptions, ProbeStep};
use platter_image::{Error, IoContext, Result};

use super::querier::Querier;
use super::{LINK_LOCAL, ProbeEvent, ProbePlace, ProbeReceived, interface};
use crate::batch::BatchSocket;
use crate::connection::Connection;
use crate::drive::random_seed;
use crate::multicast_socket::{feedback_socket, group_socket, interface_address};
use crate::options::ReceiveOptions;
use crate::wake::{Bell, Interest, wait};

/// How long to wait for a sender, unless the options say so.
const SENDER_TIME: Duration = Duration::from_secs(60);
/// Timeout for connecting to the sender, and the pause before the next attempt.
const CONNECT_TIME: Duration = Duration::from_secs(5);
const CONNECT_AGAIN: Duration = Duration::from_millis(500);
/// How long a probe may take: the sender waits for other receivers.
const PROBE_TIME: Duration = Duration::from_secs(900);
/// How long the membership of a group exists before a querier is asked about it.
const QUERIER_TIME: Duration = Duration::from_secs(1);
/// How long the connection stays open for the counts to be sent.
const FAREWELL: Duration = Duration::from_secs(2);
/// The most receive calls on a socket in one round of the loop.
const RECEIVES_AT_ONCE: usize = 8;
/// The longest sleep.
const SLEEP: Duration = Duration::from_millis(20);

/// Takes part in a probe. Uses interface, addresses, join key, name and waiting time of the options.
///
/// # Errors
/// `Refused` when there is no such interface, or the sender refuses; `Missing` when no sender is found, or it ends; `Io`.
pub fn probe_receiver(
    options: &ReceiveOptions,
    mut on_event: impl FnMut(ProbeEvent),
) -> Result<ProbeReceived> {
    let mut driver = Driver::open(options, &mut on_event)?;
    let give_up = options.give_up.unwrap_or(SENDER_TIME);
    let sender = match options.sender {
        Some(sender) => sender,
        None => driver.find(options.discovery, give_up)?,
    };
    driver.join(sender, give_up)?;
    on_event(ProbeEvent::Joined(sender));
    driver.run(sender)
}

struct Driver {
    machine: ProbeReceiver,
    interface: Ipv4Addr,
    name: Option<String>,
    port: u16,
    /// What arrives here is counted: announcements, link-local multicast, unicast, and then the group.
    sockets: Vec<BatchSocket>,
    /// Another socket, so that no firewall takes the sender's datagrams for answers.
    feedback: UdpSocket,
    connection: Option<Connection>,
    querier: Option<(Duration, Querier)>,
    bell: Bell,
    start: Instant,
}

impl Driver {
    fn open(options: &ReceiveOptions, on_event: &mut dyn FnMut(ProbeEvent)) -> Result<Self> {
        let interface = interface_address(options.interface.as_deref(), options.discovery)?;
        let name = interface::name_of(interface);
        on_event(ProbeEvent::Ready(ProbePlace {
            interface: name.clone(),
            address: interface,
            discovery: options.discovery,
        }));
        let link_local = SocketAddrV4::new(LINK_LOCAL, options.discovery.port());
        let unicast = feedback_socket(interface)?;
        let port = unicast.local_addr().context(|| "reading the address of a UDP socket".into())?.port();
        let sockets =
            [group_socket(interface, options.discovery)?, group_socket(interface, link_local)?, unicast];
        Ok(Self {
            machine: ProbeReceiver::new(ProbeReceiverOptions {
                join_key: options.join_key.clone(),
                nonce: random_seed()?,
                name: options.hello.clone(),
            }),
            interface,
            name,
            port,
            sockets: sockets.into_iter().map(BatchSocket::new).collect::<Result<_>>()?,
            feedback: feedback_socket(interface)?,
            connection: None,
            querier: None,
            bell: Bell::new()?,
            start: Instant::now(),
        })
    }

    /// Waits for an announcement.
    fn find(&mut self, discovery: SocketAddrV4, give_up: Duration) -> Result<SocketAddr> {
        while self.start.elapsed() < give_up {
            let (machine, mut found) = (&self.machine, None);
            self.sockets[0].receive(|datagram| found = found.or(machine.announced(datagram)))?;
            if let Some(found) = found {
                return Ok(found);
            }
            self.wait()?;
        }
        Err(Error::missing(format!(
            "no probe was announced at {discovery} within {} s. If `platter cast --probe` runs meanwhile, announcements do not arrive here: \
             give the address that it prints, `--sender ADDRESS:PORT`, to find out why. With a key file, both sides need it",
            give_up.as_secs()
        )))
    }

    /// Connects. The sender may be started later.
    fn join(&mut self, sender: SocketAddr, give_up: Duration) -> Result<()> {
        let until = self.start.elapsed() + give_up;
        let stream = loop {
            match TcpStream::connect_timeout(&sender, CONNECT_TIME) {
                Ok(stream) => break stream,
                Err(_) if self.start.elapsed() + CONNECT_AGAIN < until => std::thread::sleep(CONNECT_AGAIN),
                Err(error) => {
                    let advice =
                        "check its address, that `platter cast --probe` runs, and firewalls on the way";
                    return Err(Error::missing(format!(
                        "the sender at {sender} does not answer over TCP: {advice}"
                    ))
                    .with_source(error));
                }
            }
        };
        self.connection = Some(Connection::new(stream)?);
        self.machine.handle_connected(self.port);
        Ok(())
    }

    fn run(&mut self, sender: SocketAddr) -> Result<ProbeReceived> {
        let until = self.start.elapsed() + PROBE_TIME;
        loop {
            let now = self.start.elapsed();
            for socket in &mut self.sockets {
                let machine = &mut self.machine;
                for _ in 0..RECEIVES_AT_ONCE {
                    if socket.receive(|datagram| machine.handle_datagram(datagram))? == 0 {
                        break;
                    }
                }
            }
            while let Some((to, datagram)) = self.machine.poll_transmit(now) {
                // What cannot be sent counts as lost.
                let _ = self.feedback.send_to(&datagram, to);
            }
            self.ask_querier(now);
            let (steps, is_open) = self.exchange(now);
            for step in steps {
                match step {
                    ProbeStep::Listen(group) => self.listen(now, group)?,
                    ProbeStep::Refused(reason) => {
                        return Err(Error::refused(format!("the sender at {sender} refuses: {reason}")));
                    }
                    ProbeStep::Report(sent) => {
                        let counts =
                            self.machine.report(self.querier.as_ref().and_then(|(_, it)| it.answer()));
                        self.say_farewell();
                        return Ok(ProbeReceived { sent, counts });
                    }
                }
            }
            if now >= until {
                return Err(Error::missing(format!(
                    "the probe of {sender} did not end within {} minutes",
                    PROBE_TIME.as_secs() / 60
                )));
            }
            if !is_open {
                return Err(Error::missing(format!(
                    "the sender at {sender} ended before the probe did: it was stopped, or it casts instead of probing"
                )));
            }
            self.wait()?;
        }
    }

    /// Returns what the sender wants, and whether the connection is open.
    fn exchange(&mut self, now: Duration) -> (Vec<ProbeStep>, bool) {
        let Some(connection) = &mut self.connection else { return (Vec::new(), false) };
        let (machine, mut steps) = (&mut self.machine, Vec::new());
        let mut is_open = connection.read(|message| steps.extend(machine.handle_message(now, message)));
        while let Some(message) = machine.poll_message() {
            is_open &= connection.write(&message);
        }
        (steps, is_open && connection.flush())
    }

    fn listen(&mut self, now: Duration, group: SocketAddr) -> Result<()> {
        let SocketAddr::V4(group) = group else {
            return Err(Error::refused(format!(
                "the sender uses the group {group}, but only IPv4 groups are supported"
            )));
        };
        self.sockets.push(BatchSocket::new(group_socket(self.interface, group)?)?);
        let [a, b, c, d] = group.ip().octets();
        let other = SocketAddrV4::new(Ipv4Addr::new(a, b, c, d ^ 1), group.port());
        self.querier = Some((now + QUERIER_TIME, Querier::new(self.interface, self.name.as_deref(), other)));
        Ok(())
    }

    fn ask_querier(&mut self, now: Duration) {
        let Some((at, querier)) = &mut self.querier else { return };
        querier.listen();
        if now >= *at {
            querier.ask();
            *at = Duration::MAX;
        }
    }

    /// Sends the counts.
    fn say_farewell(&mut self) {
        let until = self.start.elapsed() + FAREWELL;
        while self.exchange(self.start.elapsed()).1 && self.start.elapsed() < until {
            std::thread::sleep(SLEEP);
        }
    }

    fn wait(&self) -> Result<()> {
        let readable = |descriptor| Interest { descriptor, to_read: true, to_write: false };
        let mut interests: Vec<_> = self.sockets.iter().map(|it| readable(it.socket.as_fd())).collect();
        interests.extend(self.connection.as_ref().map(|it| readable(it.stream.as_fd())));
        wait(&self.bell, &interests, SLEEP)
    }
}
