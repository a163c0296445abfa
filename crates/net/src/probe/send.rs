//! The loop of a probe's sender.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use platter_cast::{ProbeSender, ProbeSenderOptions, ProbeTarget, ProbeTransmit, ProbedReceiver};
use platter_image::{Error, Result};

use super::{ProbeEvent, ProbePlace, link_local};
use crate::batch::BatchSocket;
use crate::devices::CastPlace;
use crate::drive::{Addresses, addresses, random_seed};
use crate::joins::{Host, Joins, Need};
use crate::multicast_socket::{sender_socket, stay_on_link};
use crate::options::SendOptions;
use crate::ports::Inbox;
use crate::wake::{Bell, Interest, wait};

impl Host for ProbeSender {
    fn handle_message(&mut self, _now: Duration, connection: u64, from: IpAddr, message: &[u8]) -> bool {
        self.handle_message(connection, from, message);
        true
    }

    fn refuse(&mut self, connection: u64, reason: &str) {
        self.refuse(connection, reason);
    }

    fn handle_disconnect(&mut self, connection: u64) {
        self.handle_disconnect(connection);
    }

    fn has_joined(&self, connection: u64) -> bool {
        self.has_joined(connection)
    }

    fn need(&self, _connection: u64) -> Need {
        Need::Connection
    }
}

/// The most receivers of a probe: each keeps its connection.
const RECEIVERS_MAX: usize = 4096;
/// The most datagrams handled before connections are read.
const DATAGRAMS_AT_ONCE: usize = 256;

/// Probes the network to every receiver that joins. Uses interface, addresses, rate, join key and waiting times of the options.
///
/// # Errors
/// `Refused` when there is no such interface; `Missing` when no receiver joined; `Io`.
pub fn probe_sender(
    options: &SendOptions,
    mut on_event: impl FnMut(ProbeEvent),
) -> Result<Vec<ProbedReceiver>> {
    let mut driver = Driver::open(options, &mut on_event)?;
    driver.run(options, &mut on_event)?;
    let receivers = driver.machine.receivers();
    if receivers.is_empty() {
        return Err(Error::missing(format!(
            "no receiver joined within {} s: start `platter receive --probe` on each machine, with `--sender {}` if it does not hear \
             this one; allow TCP to that port on this machine",
            options.wait.as_secs(),
            driver.join
        )));
    }
    Ok(receivers)
}

struct Driver {
    machine: ProbeSender,
    socket: BatchSocket,
    /// Sends with a time to live of 1.
    near: BatchSocket,
    inbox: Inbox,
    join: SocketAddr,
    joins: Joins,
    bell: Bell,
    start: Instant,
    place: CastPlace,
    discovery: SocketAddr,
    group: SocketAddr,
    /// What is being sent, and how many bytes of it were.
    unsent: Option<(ProbeTransmit, usize)>,
    not_sent: Option<String>,
}

impl Driver {
    fn open(options: &SendOptions, on_event: &mut dyn FnMut(ProbeEvent)) -> Result<Self> {
        let seed = random_seed()?;
        let Addresses { place, group, discovery } = addresses(options, &seed)?;
        let port = options.ports.at(&place, options.join_port)?;
        let socket = BatchSocket::new(sender_socket(&place)?)?;
        let near = sender_socket(&place)?;
        stay_on_link(&near, place.family())?;
        let machine = ProbeSender::new(ProbeSenderOptions {
            seed,
            join_key: options.join_key.clone(),
            bits_per_second: options.rate_bits_per_second,
            group,
            join: port.join,
            feedback: port.feedback,
            receivers: options.wait_receivers,
            wait: options.wait,
        });
        let (start, bell) = (Instant::now(), Bell::new()?);
        let inbox = port.register(machine.session(), &bell)?;
        on_event(ProbeEvent::Ready(ProbePlace::new(&place, options.port)));
        on_event(ProbeEvent::Listening { join: port.join, group });
        Ok(Self {
            machine,
            socket,
            near: BatchSocket::new(near)?,
            joins: Joins::over(inbox.connections.clone(), start, RECEIVERS_MAX),
            inbox,
            join: port.join,
            bell,
            start,
            place,
            discovery,
            group,
            unsent: None,
            not_sent: None,
        })
    }

    fn run(&mut self, options: &SendOptions, on_event: &mut dyn FnMut(ProbeEvent)) -> Result<()> {
        let (mut joined, mut has_begun) = (0, false);
        while !self.machine.is_over() && !options.stop.load(Ordering::Relaxed) {
            let now = self.start.elapsed();
            let machine = &mut self.machine;
            self.inbox.receive(DATAGRAMS_AT_ONCE, |datagram| machine.handle_datagram(datagram))?;
            self.joins.receive(now, machine);
            self.send_due(now, on_event);
            while let Some((connection, message)) = self.machine.poll_message() {
                self.joins.send(&mut self.machine, connection, &message);
            }
            if self.machine.joined() != joined && !has_begun {
                joined = self.machine.joined();
                on_event(ProbeEvent::Receivers(joined));
            }
            if self.machine.has_begun() && !has_begun && joined > 0 {
                has_begun = true;
                on_event(ProbeEvent::Begun);
            }
            let socket = Interest {
                descriptor: self.socket.socket.as_fd(),
                to_read: false,
                to_write: self.unsent.is_some(),
            };
            let interests: Vec<_> = std::iter::once(socket).chain(self.joins.interests()).collect();
            let time = self.machine.next_deadline().saturating_sub(self.start.elapsed());
            if !self.inbox.has_more() {
                wait(&self.bell, &interests, time.max(Duration::from_millis(1)))?;
            }
        }
        Ok(())
    }

    /// Sends what is due, as far as the network takes it.
    fn send_due(&mut self, now: Duration, on_event: &mut dyn FnMut(ProbeEvent)) {
        loop {
            let next = self.unsent.take().or_else(|| Some((self.machine.poll_transmit(now)?, 0)));
            let Some((transmit, from)) = next else { return };
            let (socket, to) = match transmit.target {
                ProbeTarget::Discovery => (&self.socket, self.discovery),
                ProbeTarget::LinkLocal => {
                    (&self.socket, link_local(self.place.family(), self.discovery.port()))
                }
                ProbeTarget::Group => (&self.socket, self.group),
                ProbeTarget::Unicast(to) => (&self.socket, to),
                ProbeTarget::Neighbour(to) => (&self.near, to),
            };
            match socket.send(self.place.scoped(to), &transmit.bytes, transmit.datagram_bytes, from) {
                Ok(reached) if reached < transmit.bytes.len() => {
                    self.unsent = Some((transmit, reached));
                    return;
                }
                Ok(_) => {}
                // It counts as lost, as it would be farther away.
                Err(error) => {
                    let reason = error.with_causes();
                    if self.not_sent.as_ref() != Some(&reason) {
                        on_event(ProbeEvent::NotSent(reason.clone()));
                        self.not_sent = Some(reason);
                    }
                }
            }
        }
    }
}
