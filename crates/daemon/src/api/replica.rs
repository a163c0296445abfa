//! Endpoints for followers, and for stores that tell each other of promotions.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use platter_api::{FenceRequest, ReplicaReply, ReplicaRequest, StandingReply};
use platter_image::{Error, ErrorKind, Result};
use platter_records::{Action, Follower, Promotion, Standing, StoreId};
use platter_store::{Continuation, StandingChange};

use super::Shared;
use super::body::{json, read_json};
use super::gate::Asker;
use super::path::Named;
use super::problem::Problem;
use crate::clock::unix_ms;
use crate::origin::Origin;

/// Bytes of changes in one reply, except that one change is always sent.
const REPLY_LENGTH: usize = 4 << 20;
/// Maximum length of a name or address of a follower.
const TEXT_LENGTH_MAX: usize = 512;

pub(super) async fn changes(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
    headers: HeaderMap,
    sent: Body,
) -> Result<Response, Problem> {
    let request: ReplicaRequest = read_json(&origin, &asker, &headers, sent).await?;
    let texts = [&request.follower.name, &request.follower.address];
    if StoreId::from_hex(&request.follower.id).is_none() || texts.iter().any(|it| it.len() > TEXT_LENGTH_MAX)
    {
        return Err(Problem::bad_request(&Error::refused("the follower's id, name or address is invalid")));
    }
    let shared = Arc::clone(&origin);
    json(&origin.pool.run(move || shared.changes_for(request)).await?)
}

pub(super) async fn standing(
    State(origin): State<Shared>,
    Extension(_): Extension<Asker>,
) -> Result<Response, Problem> {
    let shared = Arc::clone(&origin);
    json(&origin.pool.run(move || shared.standing_reply()).await?)
}

pub(super) async fn fence(
    State(origin): State<Shared>,
    Extension(asker): Extension<Asker>,
    headers: HeaderMap,
    sent: Body,
) -> Result<Response, Problem> {
    let request: FenceRequest = read_json(&origin, &asker, &headers, sent).await?;
    if request.epoch > Standing::EPOCH_MAX {
        return Err(Problem::bad_request(&Error::refused("the successor's epoch is impossible")));
    }
    let is_text = |text: &str| text.len() <= TEXT_LENGTH_MAX && !text.contains(char::is_control);
    if StoreId::from_hex(&request.by).is_none() || !is_text(&request.address) || !is_text(&request.promotion)
    {
        return Err(Problem::bad_request(&Error::refused(
            "the successor's id, address or promotion is invalid",
        )));
    }
    let shared = Arc::clone(&origin);
    json(&origin.pool.run(move || shared.replaced(&asker, request)).await?)
}

pub(super) async fn followers(
    State(origin): State<Shared>,
    Extension(_): Extension<Asker>,
) -> Result<Response, Problem> {
    let shared = Arc::clone(&origin);
    json(&origin.pool.run(move || shared.store.followers()).await?)
}

pub(super) async fn remove_follower(
    State(origin): State<Shared>,
    Extension(_): Extension<Asker>,
    Named(id): Named<String>,
) -> Result<Response, Problem> {
    let shared = Arc::clone(&origin);
    let removed = origin.pool.run(move || {
        let _one = shared.following.lock();
        match shared.store.remove_follower(&id)? {
            true => Ok(()),
            false => Err(Error::missing(format!("there is no follower {id:?}"))),
        }
    });
    removed.await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

impl Origin {
    /// Notes that a promoted follower has replaced this store. A conflict is remembered, so that both origins learn of it.
    fn replaced(&self, asker: &Asker, request: FenceRequest) -> Result<StandingReply> {
        let FenceRequest { by, epoch, address, promotion: id } = request;
        let successor = Promotion { by, epoch, address, id };
        let replaced = self.writer.change(&asker.by, |store| {
            store.change_standing(|present, _| {
                let action = Action::Replaced { epoch, by: successor.by.clone() };
                let next = present.replaced_by(&successor)?;
                Ok(next.map(|standing| StandingChange { standing, action, used: Vec::new() }))
            })
        });
        if let Err(error) = &replaced
            && error.kind() == ErrorKind::Refused
        {
            self.writer.change(&asker.by, |store| {
                store.change_standing(|present, _| {
                    let (next, action) = (present.with_conflict(&error.to_string()), Action::NoteStanding {});
                    Ok(next.map(|standing| StandingChange { standing, action, used: Vec::new() }))
                })
            })?;
        }
        replaced?;
        self.note_change();
        self.standing_reply()
    }

    fn standing_reply(&self) -> Result<StandingReply> {
        Ok(StandingReply { store: self.store.id().to_string(), standing: self.store.standing()? })
    }

    fn changes_for(&self, request: ReplicaRequest) -> Result<ReplicaReply> {
        let found = self.store.changes_for_follower(request.position.as_ref(), REPLY_LENGTH)?;
        let StandingReply { store, standing } = self.standing_reply()?;
        let mut reply = ReplicaReply {
            store,
            standing,
            begins: false,
            diverged: None,
            changes: Vec::new(),
            next: None,
            last: 0,
        };
        let texts = match found {
            Continuation::Diverged(why) => {
                reply.diverged = Some(why);
                return Ok(reply);
            }
            Continuation::Start(texts) => {
                reply.begins = true;
                texts
            }
            Continuation::After(texts) => texts,
        };
        (reply.changes, reply.next, reply.last) = (texts.texts, Some(texts.next), texts.last);
        let follower = Follower { seen_unix_ms: unix_ms(), ..request.follower };
        let _one = self.following.lock();
        // Without space for it, only the pins of what was forgotten meanwhile are missing.
        let _ = self.store.register_follower(follower);
        Ok(reply)
    }
}
