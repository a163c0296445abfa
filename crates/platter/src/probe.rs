//! `platter cast --probe` and `platter receive --probe`.

use std::net::IpAddr;
use std::process::ExitCode;

use platter_jobs::{
    Family, ProbeCounts, ProbeEvent, ProbeFinding, ProbeSent, ProbeSeries, ReceiveOptions, Result,
    SendOptions, SenderAddress, probe_receiver, probe_sender,
};
use serde::Serialize;

use crate::output::{Output, table};

/// JSON output of the sender: one line.
#[derive(Serialize)]
struct Report {
    interface: Option<String>,
    address: Option<String>,
    group: Option<String>,
    ttl: u8,
    bits_per_second: u64,
    receivers: Vec<Receiver>,
}

/// What the probe says about a receiver; JSON output of the receiver.
#[derive(Serialize)]
struct Receiver {
    name: String,
    address: String,
    family: String,
    works: bool,
    findings: Vec<Finding>,
    #[serde(flatten)]
    numbers: Option<Numbers>,
}

#[derive(Serialize)]
struct Finding {
    code: &'static str,
    prevents_casts: bool,
    text: String,
}

/// Parts are of what was sent: 0 to 1.
#[derive(Serialize)]
struct Numbers {
    unicast_part: f64,
    neighbour_part: f64,
    feedback_part: f64,
    link_local_part: f64,
    multicast_part: f64,
    slow_loss: f64,
    full_loss: f64,
    reordered_datagrams: u32,
    repeated_datagrams: u32,
    packet_bytes_max: u16,
    announced: bool,
    has_querier: Option<bool>,
}

impl Receiver {
    fn new(name: String, address: String, sent: &ProbeSent, counts: Option<&ProbeCounts>) -> Self {
        let findings = ProbeFinding::of(sent, counts);
        let works = !findings.iter().any(ProbeFinding::prevents_casts);
        let finding = |it: &ProbeFinding| Finding {
            code: it.code(),
            prevents_casts: it.prevents_casts(),
            text: it.advice(sent.family),
        };
        let findings = findings.iter().map(finding).collect();
        let (family, numbers) = (sent.family.to_string(), counts.map(|counts| Numbers::new(sent, counts)));
        Self { name, address, family, works, findings, numbers }
    }
}

impl Numbers {
    fn new(sent: &ProbeSent, counts: &ProbeCounts) -> Self {
        let part = |series| 1.0 - sent.loss(counts, series);
        let of_feedback = f64::from(sent.of(ProbeSeries::Feedback).max(1));
        let all = [ProbeSeries::Lengths, ProbeSeries::Slow, ProbeSeries::Full];
        let received: u32 = all.iter().map(|series| counts.of(*series).received).sum();
        let sent_to_group: u32 = all.iter().map(|series| sent.of(*series)).sum();
        Self {
            unicast_part: part(ProbeSeries::Unicast),
            neighbour_part: part(ProbeSeries::Neighbour),
            feedback_part: f64::from(sent.feedback_received) / of_feedback,
            link_local_part: part(ProbeSeries::LinkLocal),
            multicast_part: f64::from(received) / f64::from(sent_to_group.max(1)),
            slow_loss: sent.loss(counts, ProbeSeries::Slow),
            full_loss: sent.loss(counts, ProbeSeries::Full),
            reordered_datagrams: counts.of(ProbeSeries::Full).overtaken,
            repeated_datagrams: counts.of(ProbeSeries::Full).repeated,
            packet_bytes_max: counts.packet_bytes_max,
            announced: counts.of(ProbeSeries::Announcement).received > 0,
            has_querier: counts.has_querier,
        }
    }
}

/// What a probe over IPv6 does not look at.
const NO_MLD: &str = "\nnote: over IPv6, an MLD querier is not looked for. If a switch does MLD snooping, it needs one in this VLAN, or forgets \
    its receivers after about four minutes";
/// The only time to live of a cast.
const TTL: u8 = 1;

pub(crate) fn sender(network: &SendOptions, output: &Output) -> Result<ExitCode> {
    let (mut place, mut group) = (None, None);
    let receivers = probe_sender(network, |event| match event {
        ProbeEvent::Listening { join, group: of_probe } => {
            group = Some(of_probe.to_string());
            let join = SenderAddress::from(join);
            output.note(&format!(
                "probing multicast to {of_probe}. On the other machines: platter receive --probe; those that do not hear this one need \
                 --sender {join}"
            ));
        }
        ProbeEvent::Ready(ready) => {
            output.note(&describe(ready.interface.as_deref(), ready.address));
            place = Some(ready);
        }
        ProbeEvent::Receivers(count) => output.note(&format!("receivers that have joined: {count}")),
        ProbeEvent::Begun => output.note("sending; this takes seven seconds"),
        ProbeEvent::NotSent(reason) => output.note(&format!("not sent: {reason}")),
        ProbeEvent::Joined(..) | ProbeEvent::NoAddress(_) => {}
    })?;
    let bits_per_second = receivers.first().map_or(0, |it| it.sent.bits_per_second);
    let receivers: Vec<Receiver> = receivers
        .iter()
        .map(|it| Receiver::new(it.name.clone(), it.address.ip().to_string(), &it.sent, it.counts.as_ref()))
        .collect();
    let report = Report {
        interface: place.as_ref().and_then(|place| place.interface.clone()),
        address: place.as_ref().map(|place| place.address.to_string()),
        group,
        ttl: TTL,
        bits_per_second,
        receivers,
    };
    output.fact(&report, || text(&report, network.rate_bits_per_second));
    Ok(code(report.receivers.iter().all(|receiver| receiver.works)))
}

pub(crate) fn receiver(network: &ReceiveOptions, output: &Output) -> Result<ExitCode> {
    let mut address = String::new();
    let received = probe_receiver(network, |event| match event {
        ProbeEvent::Ready(place) => {
            output.note(&describe(place.interface.as_deref(), place.address));
            if network.sender.is_none() {
                output.note(&format!(
                    "waiting for `platter cast --probe` to be announced at {}",
                    place.discovery
                ));
            }
        }
        ProbeEvent::NoAddress(reason) => output.note(&format!("{reason}; waiting for an address")),
        ProbeEvent::Joined(sender, own) => {
            address = own.to_string();
            output.note(&format!("joined the probe of {}", SenderAddress::from(sender)));
        }
        _ => {}
    })?;
    let report = Receiver::new(network.hello.clone(), address, &received.sent, Some(&received.counts));
    output.fact(&report, || texts(std::slice::from_ref(&report)));
    Ok(code(report.works))
}

fn code(works: bool) -> ExitCode {
    if works { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

fn describe(interface: Option<&str>, address: IpAddr) -> String {
    let limit = if address.is_ipv4() { "TTL" } else { "hop limit" };
    format!("interface {}, source address {address}, {limit} {TTL}", interface.unwrap_or("unknown"))
}

fn text(report: &Report, wanted_bits_per_second: u64) -> String {
    let mut text = texts(&report.receivers);
    let megabits = |bits: u64| bits as f64 / 1e6;
    let sent = report.bits_per_second;
    text += &format!("\nsent at {:.1} Mbit/s", megabits(sent));
    if sent < wanted_bits_per_second / 10 * 9 {
        text += &format!(
            ", less than the {:.1} Mbit/s that were wanted: this machine or its network card is the limit",
            megabits(wanted_bits_per_second)
        );
    }
    text
}

fn texts(receivers: &[Receiver]) -> String {
    let head = [
        "RECEIVER",
        "ADDRESS",
        "CASTS",
        "UNICAST",
        "MULTICAST",
        "LOSS",
        "REORDERED",
        "COPIES",
        "PACKET",
        "QUERIER",
    ];
    let mut rows = vec![head.map(String::from).to_vec()];
    rows.extend(receivers.iter().map(row));
    let mut text = table(&rows);
    let mut findings: Vec<(&Finding, Vec<&str>)> = Vec::new();
    for receiver in receivers {
        for finding in &receiver.findings {
            match findings.iter_mut().find(|(known, _)| known.text == finding.text) {
                Some((_, names)) => names.push(&receiver.name),
                None => findings.push((finding, vec![&receiver.name])),
            }
        }
    }
    for (finding, names) in &findings {
        let weight = if finding.prevents_casts { "problem" } else { "warning" };
        text += &format!("\n{weight}: {}: {}", names.join(", "), finding.text);
    }
    if receivers.iter().any(|it| it.family == Family::Ipv6.to_string()) {
        text += NO_MLD;
    }
    if findings.is_empty() {
        text += "\nmulticast works: a cast reaches every receiver";
    }
    text
}

fn row(receiver: &Receiver) -> Vec<String> {
    let mut row = vec![receiver.name.clone(), receiver.address.clone()];
    row.push(if receiver.works { "work" } else { "do not work" }.into());
    let Some(numbers) = &receiver.numbers else {
        row.resize(10, "-".into());
        return row;
    };
    let percent = |part: f64| format!("{:.1} %", part * 100.0);
    row.extend([
        percent(numbers.unicast_part),
        percent(numbers.multicast_part),
        percent(numbers.full_loss),
        numbers.reordered_datagrams.to_string(),
        numbers.repeated_datagrams.to_string(),
        numbers.packet_bytes_max.to_string(),
        match numbers.has_querier {
            None => "unknown",
            Some(true) => "yes",
            Some(false) => "no",
        }
        .into(),
    ]);
    row
}
