//! `platter serve`.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use platter_daemon::{
    AccessTokens, CastOnDemand, Collections, NamePattern, ServeEvent, ServeOptions, TellOfCast, TlsFiles,
    serve,
};
use platter_jobs::{
    AskForHoardCastRequest, CastDesk, CastDeskOptions, CastFamily, CastOffer, Domain, Error, HoardCastOffer,
    HoardSnapshot, Home, Resolved, Store, StoreLocation, StorePlace, tell_former,
};
use platter_live::{overlay_bases, served_disks};
use serde_json::json;

use super::images::time;
use super::{Outcome, TOOL_VERSION};
use crate::arguments::{AccessToken, Serve, ServeCasts, ServeCommand};
use crate::output::{Output, table};
use crate::served_files::ServedFiles;
use crate::sizes::bytes;

pub(crate) fn run(store: &StoreLocation, options: &Serve, output: &Output) -> Outcome {
    let place = store.local("serving a store")?.clone();
    if let Some(ServeCommand::Token(command)) = &options.command {
        return tokens(&place, command, output);
    }
    let files = options.certificate.clone().zip(options.key.clone());
    let domain = place.read_key_file()?.map_or(Domain::SHARED, |keys| keys.domain());
    let cast = on_demand(&options.casts, place.dir(), domain)?;
    if let Some(warning) = Store::open_reader(&place)?.home().as_ref().and_then(Home::warning) {
        output.note(&warning);
    }
    let request = ServeOptions {
        store: place,
        listen: options.listen.clone(),
        tls: files.map(|(certificate, key)| TlsFiles { certificate, key }),
        take_over: options.take_over,
        upload_limit: options.upload_limit,
        tool_version: TOOL_VERSION.into(),
        list_disks: Arc::new(served_disks),
        cast,
        look_inside: Arc::new(ServedFiles::new()?),
        collections: options.gc.map(|every| Collections { every, recompress: options.recompress }),
        scrub_period: options.scrub,
        overlay_bases: Arc::new(|store: &Store| overlay_bases(store.place().dir())),
        tell_former: Arc::new(tell_former),
    };
    let output = *output;
    serve(&request, move |event| tell(event, output))?;
    Ok(ExitCode::SUCCESS)
}

/// Casts that receivers ask for, if the operator wants them.
fn on_demand(
    options: &ServeCasts,
    store: &Path,
    domain: Domain,
) -> platter_jobs::Result<Option<Arc<dyn CastOnDemand>>> {
    let Some(interface) = &options.cast else { return Ok(None) };
    let options = CastDeskOptions {
        interface: interface.clone(),
        rate_bits_per_second: options.cast_rate,
        casts_max: usize::from(options.casts_max),
        gather: options.cast_wait,
        linger: options.cast_linger,
        hoard_nodes_min: usize::from(options.cast_hoard),
    };
    Ok(Some(Arc::new(Desk(CastDesk::new(options, store, domain)?))))
}

/// The casts of this process, for its origin.
struct Desk(Arc<CastDesk>);

impl CastOnDemand for Desk {
    fn version(
        &self,
        store: &Store,
        resolved: &Resolved,
        asked: (&[CastFamily], Option<&str>),
        tell: TellOfCast,
    ) -> platter_jobs::Result<CastOffer> {
        self.0.ask(store, resolved, asked, move |id, status| tell(id, status))
    }

    fn hoard(
        &self,
        store: &Store,
        hoard: &HoardSnapshot,
        request: &AskForHoardCastRequest,
        tell: TellOfCast,
    ) -> platter_jobs::Result<HoardCastOffer> {
        self.0.ask_for_hoard(store, hoard, request, move |id, status| tell(id, status))
    }
}

fn tell(event: &ServeEvent, output: Output) {
    match event {
        ServeEvent::ListeningUnix(path) => {
            let address = format!("unix:{}", path.display());
            output.fact(&json!({ "listening": address }), || format!("serving at {address}"));
        }
        ServeEvent::ListeningTcp { address, fingerprint } => {
            let address = format!("https://{address}");
            output.fact(&json!({ "listening": address, "fingerprint": fingerprint }), || {
                format!("serving at {address}\nfingerprint {fingerprint}")
            });
        }
        ServeEvent::Ending => output.note("shutting down: finishing running requests"),
        ServeEvent::HandedOver => output.note("another process has taken over: finishing running requests"),
        ServeEvent::Note(note) => output.note(note),
    }
}

fn tokens(place: &StorePlace, command: &AccessToken, output: &Output) -> Outcome {
    if !place.is_store()? {
        return Err(Error::missing(format!("{} is not a store", place.dir().display())));
    }
    let tokens = AccessTokens::of(place);
    match command {
        AccessToken::Add { name, role, patterns, quota } => {
            let made = tokens.add(name, *role, patterns.clone(), *quota)?;
            output.fact(&made, || format!("token {} {name}\nsecret {}", made.token.id, made.secret));
        }
        AccessToken::Remove { id } => {
            let removed = tokens.remove(id)?;
            place.end_leases(id).map_err(|error| {
                error.within(format!(
                    "the token {id} was removed, but what it read is kept from collection for some days"
                ))
            })?;
            output.fact(&removed, || format!("removed token {id} ({})", removed.name));
        }
        AccessToken::List => list(&tokens.list()?, output),
    }
    Ok(ExitCode::SUCCESS)
}

fn list(tokens: &[platter_daemon::AccessToken], output: &Output) {
    if output.is_json() {
        tokens.iter().for_each(|token| output.fact(token, String::new));
        return;
    }
    if tokens.is_empty() {
        output.fact(&json!(null), || "no access tokens: TCP clients are rejected".into());
        return;
    }
    let mut rows = vec![["TOKEN", "ROLE", "IMAGES", "QUOTA", "SINCE", "NAME"].map(String::from).to_vec()];
    rows.extend(tokens.iter().map(|token| {
        let patterns: Vec<String> = token.patterns.iter().map(NamePattern::to_string).collect();
        let since = time(token.created_unix_ms);
        let quota = token.quota_bytes.map_or("-".into(), bytes);
        vec![token.id.clone(), token.role.to_string(), patterns.join(" "), quota, since, token.name.clone()]
    }));
    output.fact(&json!(null), || table(&rows));
}
