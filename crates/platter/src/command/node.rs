//! `platter node`.

use std::process::ExitCode;

use platter_jobs::{
    AttachRequest, LivePlace, NodeRequest, OnDetach, ServeAddress, SharingRequest, StoreLocation, attach,
    default_holder,
};

use super::attach::{mount, stop_at_signals, tell, tls};
use super::{Outcome, TOOL_VERSION};
use crate::arguments::Node;
use crate::output::Output;
use crate::server::cached;

pub(crate) fn run(store: &StoreLocation, options: &Node, output: &Output) -> Outcome {
    let nbd = options.nbd.nbd.clone();
    let nbd = nbd.unwrap_or_else(|| ServeAddress::Unix(options.cache_dir.join("nbd.sock")));
    let store = cached(store, &options.cache_dir, options.cache_size)?;
    let memory_bytes = u64::from(options.memory) << 20;
    let sharing = options.peers.map(|address| SharingRequest {
        address,
        bits_per_second_max: options.share_rate,
        memory_bytes_max: memory_bytes,
    });
    let name = options.name.clone().unwrap_or_else(host_name);
    let request = AttachRequest {
        place: LivePlace::of_cache(&store, &options.cache_dir),
        versions: options.versions.iter().map(ToString::to_string).collect(),
        write: false,
        steal: false,
        holder: default_holder(),
        nbd: Some(nbd),
        tls: tls(&options.nbd)?,
        insecure_loopback: options.nbd.insecure_loopback,
        fuse: mount(&options.tree),
        ninep: options.tree.ninep.clone(),
        cache_bytes: memory_bytes as usize,
        record: None,
        on_detach: OnDetach::Keep,
        publish_every: None,
        hoard: (!options.no_hoard).then(|| options.cache_dir.clone()),
        notes: String::new(),
        tool_version: TOOL_VERSION.into(),
        fill: options.fill,
        node: Some(NodeRequest { name, sharing }),
        stop: stop_at_signals()?,
    };
    let output = *output;
    attach(request, Box::new(move |event| tell(event, output)))?;
    Ok(ExitCode::SUCCESS)
}

/// Host name of this machine.
fn host_name() -> String {
    let holder = default_holder();
    holder.rsplit_once('@').map_or_else(|| holder.clone(), |(_, host)| host.to_owned())
}
