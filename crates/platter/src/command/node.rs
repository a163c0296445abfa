//! `platter node`.

use std::process::ExitCode;

use platter_jobs::{SharingRequest, StoreLocation, default_holder};
use platter_live::{AttachRequest, LivePlace, NodeRequest, ServeAddress, ServersRequest, TreeAccess, attach};

use super::attach::{absolute, disks, nbd_at, stop_at_signals, tell, trees};
use super::{Outcome, TOOL_VERSION};
use crate::arguments::Node;
use crate::output::Output;
use crate::server::cached;

pub(crate) fn run(store: &StoreLocation, options: &Node, output: &Output) -> Outcome {
    // Clients get absolute addresses, because they run in other directories.
    let cache_dir = absolute(&options.cache_dir)?;
    let nbd = options.nbd.nbd.clone();
    let nbd = nbd.unwrap_or_else(|| ServeAddress::Unix(cache_dir.join("nbd.sock")));
    let store = cached(store, &cache_dir, options.cache_size)?;
    let memory_bytes = u64::from(options.memory) << 20;
    let sharing =
        options.peers.map(|address| SharingRequest { address, bits_per_second_max: options.share_rate });
    let name = options.name.clone().unwrap_or_else(host_name);
    let (fuse, ninep) = trees(&options.tree, &options.nbd)?;
    let tree_access = if options.disk.write { TreeAccess::Names } else { TreeAccess::Disks };
    let request = AttachRequest {
        place: LivePlace::of_cache(&store, &cache_dir),
        disks: disks(&options.versions, &options.disk),
        servers: ServersRequest { nbd: Some(nbd_at(&options.nbd, nbd)?), fuse, ninep, tree_access },
        memory_bytes: memory_bytes as usize,
        hoard: (!options.no_hoard).then_some(cache_dir),
        node: Some(NodeRequest {
            name,
            sharing,
            record_boots: !options.no_record_boots,
            casts: !options.no_casts,
            interface: options.interface.clone(),
        }),
        take_over: options.take_over,
        signatures: options.signatures.policy(),
        tool_version: TOOL_VERSION.into(),
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
