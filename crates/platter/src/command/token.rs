//! `platter token`: edit locks.

use std::process::ExitCode;

use platter_jobs::{OpenStore, StoreLocation, default_holder, release_token, steal_token, take_token};
use serde_json::json;

use super::Outcome;
use super::images::time;
use crate::arguments::{Token, TokenOf};
use crate::output::{Output, table};

pub(crate) fn run(store: &StoreLocation, options: &Token, output: &Output) -> Outcome {
    let holder = |of: &TokenOf| of.holder.clone().unwrap_or_else(default_holder);
    let (token, done) = match options {
        Token::List => return list(&OpenStore::open_reader(store)?, output),
        Token::Take(of) => (take_token(store, &of.name, &holder(of))?, "taken"),
        Token::Steal(of) => (steal_token(store, &of.name, &holder(of))?, "taken over"),
        Token::Release(of) => (release_token(store, &of.name, &holder(of))?, "released"),
    };
    output.fact(&token, || format!("{}: {done}: {token}", token.image));
    Ok(ExitCode::SUCCESS)
}

fn list(store: &OpenStore, output: &Output) -> Outcome {
    let tokens = store.tokens()?;
    if output.is_json() {
        tokens.iter().for_each(|token| output.fact(token, String::new));
    } else if tokens.is_empty() {
        output.fact(&json!(null), || "no edit lock is held".into());
    } else {
        let mut rows = vec![["IMAGE", "LOCK", "HOLDER", "SINCE", "OVERLAY"].map(String::from).to_vec()];
        rows.extend(tokens.iter().map(|token| {
            let overlay = if token.overlay.is_empty() { "-".into() } else { token.overlay.clone() };
            let number = token.number.to_string();
            vec![token.image.to_string(), number, token.holder.clone(), time(token.time_unix_ms), overlay]
        }));
        output.fact(&json!(null), || table(&rows));
    }
    Ok(ExitCode::SUCCESS)
}
