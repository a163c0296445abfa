//! Executes requests of the control socket: each has the same effect as the command without a node.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use platter_image::{Error, Result};
use platter_transport::notify_main_process;
use platter_vdisk::BlockDevice as _;

use super::agent::Agent;
use super::attached::Attached;
use super::casting;
use super::control::{Answer, Question};
use super::disk_request::DiskRequest;
use super::event::LiveEvent;
use super::publish::{PublishRequest, discard_from, publish_from};
use super::served::Served;
use platter_fetch::OpenStore;
use platter_jobs::clone_from;
use platter_jobs::{CloneRequest, Silent};

/// Executes a request.
///
/// # Errors
/// The errors of the request.
pub(super) fn answer(
    served: &Arc<Served>,
    agent: &Arc<Agent>,
    question: Question,
    stream: &UnixStream,
) -> Result<Answer> {
    match question {
        Question::TakeOver(claim) => {
            served.hand_over(&claim, stream)?;
            notify_main_process(stream);
            served.tell(&LiveEvent::HandedOver);
            Err(Error::bug("a process that handed everything over has not ended"))
        }
        Question::Disks => Ok(Answer::Disks(served.listed())),
        Question::Attach(requests) => Ok(Answer::Attached(attach_all(served, &requests)?)),
        Question::Publish { disk, words } => {
            Ok(Answer::Published(served.publish(&*served.disk(&disk)?, &words)?))
        }
        Question::Detach { disk, then, words } => {
            let detached = match agent.forget_pending(&disk)? {
                true => None,
                false => {
                    let disk = served.disk(&disk)?;
                    let words = match then {
                        None if words.notes.is_empty() => served.words(&disk),
                        _ => words,
                    };
                    served.detach(&disk, then.unwrap_or_else(|| disk.on_detach()), &words)?
                }
            };
            if served.is_done() {
                served.stop().store(true, Ordering::Relaxed);
            }
            Ok(Answer::Detached(detached))
        }
        Question::PublishImage { image, edit_lock, words } => {
            let request = PublishRequest {
                place: served.opener.place.clone(),
                disk: image,
                edit_lock,
                branch: words.branch,
                labels: words.labels,
                notes: words.notes,
                tool_version: words.tool_version,
            };
            Ok(Answer::Published(publish_from(served.store(), &request, &Silent)?))
        }
        Question::Discard { image, edit_lock } => {
            Ok(Answer::Discarded(discard_from(served.store(), &served.opener.place, &image, edit_lock)?))
        }
        Question::Clone { version, name, next, edit_lock, tool_version } => {
            let store = served.request().place.store().clone();
            let request = CloneRequest { store, version, name, next, edit_lock, tool_version };
            // A store in a directory is opened for writing only during the clone.
            let cloned = match served.store().remote() {
                Some(_) => clone_from(served.store(), &request),
                None => clone_from(&OpenStore::open_writer(&request.store)?, &request),
            };
            Ok(Answer::Cloned(cloned?))
        }
        Question::Cast(request) => casting::answer(served, &request, stream),
    }
}

/// Attaches disks: all of them, or none.
fn attach_all(served: &Arc<Served>, requests: &[DiskRequest]) -> Result<Vec<Attached>> {
    let mut all: Vec<(Attached, bool)> = Vec::new();
    for request in requests {
        match attach(served, request) {
            Ok(attached) => all.push(attached),
            Err(error) => {
                // The last one first: a disk may have been attached and then filled.
                for (Attached { disk, .. }, is_new) in all.iter().rev() {
                    match is_new {
                        true => served.withdraw(disk),
                        false => served.withdraw_fill(disk),
                    }
                }
                return Err(match requests {
                    [_] => error,
                    _ => {
                        error.within(format!("none of the disks is attached, because of {}", request.version))
                    }
                });
            }
        }
    }
    let all: Vec<Attached> = all.into_iter().map(|(attached, _)| attached).collect();
    for attached in &all {
        served.tell(&LiveEvent::Attached(attached));
    }
    Ok(all)
}

/// Attaches a disk, and returns whether it was not served before. A read-only disk that is already served can still get a fill.
fn attach(served: &Arc<Served>, request: &DiskRequest) -> Result<(Attached, bool)> {
    let (disk, is_new) = match served.opener.name_of(&request.version) {
        Ok(name) if request.fill && request.write.is_none() && served.is_attached(&name) => {
            let disk = served.disk(&name)?;
            if served.fills.score(&name).is_some() || disk.disk.is_writable() {
                return Err(Error::refused(format!("{name} is attached already")));
            }
            let filled = served.fill(&name, disk.disk.state()?.0).and_then(|()| served.remember(&disk, true));
            filled.inspect_err(|_| served.withdraw_fill(&name))?;
            (disk, false)
        }
        _ => (served.disk(&served.attach(request)?)?, true),
    };
    Ok((served.attached_disk(&disk)?, is_new))
}
