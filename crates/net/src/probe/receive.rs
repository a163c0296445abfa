//! The loop of a probe's receiver.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use platter_cast::{Opening, ProbeReceiver, ProbeReceiverOptions, ProbeStep};
use platter_image::{Error, IoContext, Result};

use super::querier::Querier;
use super::{ProbeEvent, ProbePlace, ProbeReceived, link_local};
use crate::batch::BatchSocket;
use crate::connection::Connection;
use crate::devices::{CastPlace, discovery};
use crate::drive::random_seed;
use crate::listening::{FamilySockets, Listening};
use crate::multicast_socket::{feedback_socket, group_socket};
use crate::options::ReceiveOptions;
use crate::scope::SenderAddress;
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
    let (mut machine, start) = (machine(options)?, Instant::now());
    let (sender, sockets) = find(options, &machine, start, &mut on_event)?;
    let until = start.elapsed() + options.give_up.unwrap_or(SENDER_TIME);
    let connection = join(sender, start, until)?;
    let address = sockets.place.address;
    let mut driver = Driver::open(options, sockets, connection, start)?;
    machine.handle_connected(driver.port);
    on_event(ProbeEvent::Joined(sender, address));
    driver.run(machine, sender)
}

fn machine(options: &ReceiveOptions) -> Result<ProbeReceiver> {
    Ok(ProbeReceiver::new(ProbeReceiverOptions {
        join_key: options.join_key.clone(),
        nonce: random_seed()?,
        name: options.hello.clone(),
    }))
}

/// Waits for an announcement, in each family that this machine has; not if the caller knows the sender. Returns its address, and what to
/// use for its family.
fn find(
    options: &ReceiveOptions,
    machine: &ProbeReceiver,
    start: Instant,
    on_event: &mut dyn FnMut(ProbeEvent),
) -> Result<(SocketAddr, FamilySockets)> {
    let (mut listening, bell) = (Listening::new(options)?, Bell::new()?);
    let ready = |place: &CastPlace| ProbeEvent::Ready(ProbePlace::new(place, options.port));
    listening.families().iter().for_each(|sockets| on_event(ready(&sockets.place)));
    if let Some(reason) = listening.deafness() {
        on_event(ProbeEvent::NoAddress(reason));
    }
    let give_up = options.give_up.unwrap_or(SENDER_TIME);
    let mut found = options.sender;
    loop {
        if let Some(sender) = found.and_then(|sender| listening.scoped(sender)) {
            let sockets = listening.into_sockets(sender);
            return Ok((sender, sockets.ok_or_else(|| Error::bug("a scope without a place"))?));
        }
        if start.elapsed() >= give_up {
            break;
        }
        wait(&bell, &listening.interests().collect::<Vec<_>>(), SLEEP)?;
        listening.look(start.elapsed())?.iter().for_each(|place| on_event(ready(place)));
        let mut announced = Vec::new();
        listening.receive(|datagram| announced.extend(machine.announced(datagram)))?;
        // Anybody can announce an address of a family that this machine lacks.
        found = found.or_else(|| announced.into_iter().find(|sender| listening.of(*sender).is_some()));
    }
    // Without an address, also one that was lost meanwhile, that is the reason.
    if listening.families().is_empty() {
        return Err(listening.lacks_all());
    }
    if let Some(sender) = options.sender.filter(|sender| listening.of(*sender).is_none()) {
        return Err(listening.lacks(sender));
    }
    Err(Error::missing(format!(
        "no probe was announced at {} within {} s. If `platter cast --probe` runs meanwhile, announcements do not arrive here: \
         give the address that it prints, `--sender ADDRESS:PORT`, to find out why. With a key file, both sides need it",
        listening
            .families()
            .iter()
            .map(|sockets| discovery(sockets.place.family(), options.port).to_string())
            .collect::<Vec<_>>()
            .join(" and "),
        give_up.as_secs()
    )))
}

/// Connects. The sender may be started later.
fn join(sender: SocketAddr, start: Instant, until: Duration) -> Result<Connection> {
    loop {
        match TcpStream::connect_timeout(&sender, CONNECT_TIME) {
            Ok(stream) => return Connection::new(stream, &Opening::default().to_bytes()),
            Err(_) if start.elapsed() + CONNECT_AGAIN < until => std::thread::sleep(CONNECT_AGAIN),
            Err(error) => {
                let advice = "check its address, that `platter cast --probe` runs, and firewalls on the way";
                return Err(Error::missing(format!(
                    "the sender at {} does not answer over TCP: {advice}",
                    SenderAddress::from(sender)
                ))
                .with_source(error));
            }
        }
    }
}

struct Driver {
    place: CastPlace,
    port: u16,
    /// What arrives here is counted: announcements, link-local multicast, unicast, and then the group.
    sockets: Vec<BatchSocket>,
    /// Another socket, so that no firewall takes the sender's datagrams for answers.
    feedback: UdpSocket,
    connection: Connection,
    querier: Option<(Duration, Querier)>,
    bell: Bell,
    start: Instant,
}

impl Driver {
    fn open(
        options: &ReceiveOptions,
        sockets: FamilySockets,
        connection: Connection,
        start: Instant,
    ) -> Result<Self> {
        let FamilySockets { place, discovery, feedback } = sockets;
        // The sender knows the address of the connection, which may be another one of the interface.
        let local =
            connection.stream.local_addr().context(|| "reading the address of a connection".into())?;
        let unicast = feedback_socket(&place.with_address(local.ip()))?;
        let port = unicast.local_addr().context(|| "reading the address of a UDP socket".into())?.port();
        let link_local = group_socket(&place, link_local(place.family(), options.port))?;
        Ok(Self {
            port,
            sockets: vec![discovery, BatchSocket::new(link_local)?, BatchSocket::new(unicast)?],
            feedback,
            connection,
            querier: None,
            bell: Bell::new()?,
            start,
            place,
        })
    }

    fn run(&mut self, mut machine: ProbeReceiver, sender: SocketAddr) -> Result<ProbeReceived> {
        let sender = SenderAddress::from(sender);
        let until = self.start.elapsed() + PROBE_TIME;
        loop {
            let now = self.start.elapsed();
            for socket in &mut self.sockets {
                for _ in 0..RECEIVES_AT_ONCE {
                    if socket.receive(|datagram| machine.handle_datagram(datagram))? == 0 {
                        break;
                    }
                }
            }
            while let Some((to, datagram)) = machine.poll_transmit(now) {
                // What cannot be sent counts as lost.
                let _ = self.feedback.send_to(&datagram, self.place.scoped(to));
            }
            self.ask_querier(now);
            let (steps, is_open) = self.exchange(&mut machine, now);
            for step in steps {
                match step {
                    ProbeStep::Listen(group) => self.listen(now, group)?,
                    ProbeStep::Refused(reason) => {
                        return Err(Error::refused(format!("the sender at {sender} refuses: {reason}")));
                    }
                    ProbeStep::Report(sent) => {
                        let counts = machine.report(self.querier.as_ref().and_then(|(_, it)| it.answer()));
                        self.say_farewell(&mut machine);
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
    fn exchange(&mut self, machine: &mut ProbeReceiver, now: Duration) -> (Vec<ProbeStep>, bool) {
        let (connection, mut steps) = (&mut self.connection, Vec::new());
        let mut is_open = connection.read(|message| steps.extend(machine.handle_message(now, message)));
        while let Some(message) = machine.poll_message() {
            is_open &= connection.write(&message);
        }
        (steps, is_open && connection.flush(Instant::now()))
    }

    fn listen(&mut self, now: Duration, group: SocketAddr) -> Result<()> {
        self.sockets.push(BatchSocket::new(group_socket(&self.place, group)?)?);
        // Queriers of IPv6 (MLD) are not looked for.
        if let IpAddr::V4(ip) = group.ip() {
            let [a, b, c, d] = ip.octets();
            let other = SocketAddrV4::new(Ipv4Addr::new(a, b, c, d ^ 1), group.port());
            self.querier = Querier::new(&self.place, other).map(|querier| (now + QUERIER_TIME, querier));
        }
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
    fn say_farewell(&mut self, machine: &mut ProbeReceiver) {
        let until = self.start.elapsed() + FAREWELL;
        while self.exchange(machine, self.start.elapsed()).1 && self.start.elapsed() < until {
            std::thread::sleep(SLEEP);
        }
    }

    fn wait(&self) -> Result<()> {
        let readable = |descriptor| Interest { descriptor, to_read: true, to_write: false };
        let mut interests: Vec<_> = self.sockets.iter().map(|it| readable(it.socket.as_fd())).collect();
        interests.push(readable(self.connection.stream.as_fd()));
        wait(&self.bell, &interests, SLEEP)
    }
}
