//! The NBD negotiation as a pure state machine: options in, replies out.

use std::sync::Arc;

use platter_image::{Error, ErrorKind, Result};
use platter_vdisk::BlockDevice;

use super::wire::{
    BASE_ALLOCATION, BASE_ALLOCATION_ID, CLIENT_FIXED_NEWSTYLE, CLIENT_NO_ZEROES, INFO_BLOCK_SIZE,
    INFO_DESCRIPTION, INFO_EXPORT, INFO_NAME, NAME_BYTES_MAX, OptionRequest, PAYLOAD_BYTES_MAX, ReplyKind,
    first_part, option_reply, transmission_flags,
};
use crate::Exports;

/// Maximum number of options per client.
const OPTIONS_MAX: u32 = 256;
/// Minimum length and alignment of requests: devices accept any.
const BLOCK_BYTES_MIN: u32 = 1;
/// Preferred request size for reads: about the size of a block.
const BLOCK_BYTES_READ: u32 = 64 << 10;
/// Preferred request size for writes: a page.
const BLOCK_BYTES_WRITE: u32 = 4 << 10;
/// Zeros after the reply to `EXPORT_NAME`, for clients that did not decline them.
const OLD_ZEROES: usize = 124;

/// The result of the negotiation; requests follow.
#[derive(Clone)]
pub struct Agreed {
    /// The export's own name.
    pub name: String,
    /// The export.
    pub device: Arc<dyn BlockDevice>,
    /// Structured replies are used.
    pub structured: bool,
    /// The client may request extents.
    pub contexts: bool,
}

/// The next step after an option.
pub enum Step {
    /// The next option.
    Continue,
    /// Requests.
    Transmit(Agreed),
    /// The TLS handshake, then the next option.
    StartTls,
    /// The end: the client aborted, or used `EXPORT_NAME` for an export that does not exist or is not available without
    /// TLS.
    End,
}

/// TLS state of the connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Security {
    /// TLS is not available.
    Clear,
    /// TLS is required.
    Required,
    /// TLS has started.
    Tls,
}

/// The negotiation of one client.
pub struct Negotiation<'a> {
    exports: &'a dyn Exports,
    security: Security,
    no_zeroes: bool,
    structured: bool,
    /// The export for which the client selected the allocation context.
    context_of: Option<String>,
    options: u32,
}

impl<'a> Negotiation<'a> {
    /// Starts with the client's handshake flags.
    ///
    /// # Errors
    /// `Corrupt` for flags that the server did not offer.
    pub fn new(exports: &'a dyn Exports, client_flags: u32) -> Result<Self> {
        if client_flags & !(CLIENT_FIXED_NEWSTYLE | CLIENT_NO_ZEROES) != 0 {
            return Err(Error::corrupt(format!(
                "the client sent flags {client_flags:#x}, which were not offered"
            )));
        }
        let no_zeroes = client_flags & CLIENT_NO_ZEROES != 0;
        let security = Security::Clear;
        Ok(Self { exports, security, no_zeroes, structured: false, context_of: None, options: 0 })
    }

    /// From now on the client gets no information, not even export names, before TLS: FORCEDTLS mode of the protocol
    /// document.
    pub fn require_tls(&mut self) {
        self.security = Security::Required;
    }

    /// Handles option `code`: appends replies to `to`, and returns the next step.
    ///
    /// # Errors
    /// `Corrupt` when the connection must end without a reply: too many options, or invalid data where the protocol has
    /// no error reply.
    pub fn handle(&mut self, code: u32, data: &[u8], to: &mut Vec<u8>) -> Result<Step> {
        self.options += 1;
        if self.options > OPTIONS_MAX {
            return Err(Error::corrupt(format!("more than {OPTIONS_MAX} options")));
        }
        if self.security == Security::Required
            && let Some(step) = refuse_in_the_clear(code, to)
        {
            return Ok(step);
        }
        let request = match OptionRequest::parse(code, data) {
            Ok(request) => request,
            Err(error) => {
                self.forget_context(code);
                option_reply(to, code, ReplyKind::Invalid, error.to_string().as_bytes());
                return Ok(Step::Continue);
            }
        };
        let mut reply = |kind, data: &[u8]| option_reply(to, code, kind, data);
        match request {
            OptionRequest::ExportName(name) => return Ok(self.export_name(name, to)),
            OptionRequest::Abort => {
                reply(ReplyKind::Acknowledged, &[]);
                return Ok(Step::End);
            }
            OptionRequest::List => {
                for name in self.exports.list().iter().filter(|name| name.len() <= NAME_BYTES_MAX) {
                    reply(ReplyKind::Server, &[&(name.len() as u32).to_be_bytes(), name.as_bytes()].concat());
                }
                reply(ReplyKind::Acknowledged, &[]);
            }
            OptionRequest::StructuredReply if self.structured => {
                reply(ReplyKind::Invalid, b"structured replies are already negotiated");
            }
            OptionRequest::StructuredReply => {
                self.structured = true;
                reply(ReplyKind::Acknowledged, &[]);
            }
            OptionRequest::Info { go, name, wishes } => return Ok(self.info(code, go, name, &wishes, to)),
            OptionRequest::MetaContext { set, name, queries } => {
                self.meta_context(code, set, name, &queries, to);
            }
            OptionRequest::StartTls => match self.security {
                Security::Clear => reply(ReplyKind::Unsupported, b"TLS is not available"),
                Security::Tls => reply(ReplyKind::Invalid, b"TLS is already active"),
                Security::Required => {
                    reply(ReplyKind::Acknowledged, &[]);
                    self.security = Security::Tls;
                    return Ok(Step::StartTls);
                }
            },
            OptionRequest::Unknown => reply(ReplyKind::Unsupported, &[]),
        }
        Ok(Step::Continue)
    }

    /// The name itself; for the empty name, the name of the only export.
    fn own_name(&self, name: &str) -> String {
        if name.is_empty()
            && let [only] = self.exports.list().as_slice()
        {
            return only.clone();
        }
        name.to_owned()
    }

    fn agree(&self, name: &str) -> Result<Agreed> {
        let name = self.own_name(name);
        let device = self.exports.open(&name)?;
        let contexts = self.structured && self.context_of.as_ref() == Some(&name);
        Ok(Agreed { name, device, structured: self.structured, contexts })
    }

    fn export_name(&self, name: &str, to: &mut Vec<u8>) -> Step {
        // The protocol has no error reply here.
        let Ok(agreed) = self.agree(name) else { return Step::End };
        to.extend_from_slice(&agreed.device.length().to_be_bytes());
        to.extend_from_slice(&transmission_flags(agreed.device.is_writable()).to_be_bytes());
        if !self.no_zeroes {
            to.extend_from_slice(&[0; OLD_ZEROES]);
        }
        Step::Transmit(agreed)
    }

    fn info(&self, code: u32, go: bool, name: &str, wishes: &[u16], to: &mut Vec<u8>) -> Step {
        let agreed = match self.agree(name) {
            Ok(agreed) => agreed,
            Err(error) => {
                refuse(code, &error, to);
                return Step::Continue;
            }
        };
        let mut fact = |kind: u16, fact: &[u8]| {
            option_reply(to, code, ReplyKind::Info, &[&kind.to_be_bytes(), fact].concat());
        };
        let is_writable = agreed.device.is_writable();
        let size = agreed.device.length().to_be_bytes();
        fact(INFO_EXPORT, &[&size[..], &transmission_flags(is_writable).to_be_bytes()].concat());
        if wishes.contains(&INFO_NAME) {
            fact(INFO_NAME, agreed.name.as_bytes());
        }
        if wishes.contains(&INFO_DESCRIPTION)
            && let Some(text) = self.exports.describe(&agreed.name)
        {
            fact(INFO_DESCRIPTION, first_part(&text).as_bytes());
        }
        if wishes.contains(&INFO_BLOCK_SIZE) {
            let preferred = if is_writable { BLOCK_BYTES_WRITE } else { BLOCK_BYTES_READ };
            let sizes = [BLOCK_BYTES_MIN, preferred, PAYLOAD_BYTES_MAX];
            fact(INFO_BLOCK_SIZE, &sizes.map(u32::to_be_bytes).concat());
        }
        option_reply(to, code, ReplyKind::Acknowledged, &[]);
        if go { Step::Transmit(agreed) } else { Step::Continue }
    }

    fn meta_context(&mut self, code: u32, set: bool, name: &str, queries: &[&str], to: &mut Vec<u8>) {
        self.forget_context(code);
        if !self.structured {
            option_reply(to, code, ReplyKind::Invalid, b"structured replies must be negotiated first");
            return;
        }
        let name = self.own_name(name);
        if let Err(error) = self.exports.open(&name) {
            refuse(code, &error, to);
            return;
        }
        let is_meant = |query: &&str| *query == BASE_ALLOCATION || (!set && *query == "base:");
        if queries.iter().any(is_meant) || (!set && queries.is_empty()) {
            let number = if set { BASE_ALLOCATION_ID } else { 0 };
            let context = [&number.to_be_bytes(), BASE_ALLOCATION.as_bytes()].concat();
            option_reply(to, code, ReplyKind::MetaContext, &context);
            if set {
                self.context_of = Some(name);
            }
        }
        option_reply(to, code, ReplyKind::Acknowledged, &[]);
    }

    /// Each selection of contexts replaces the previous one, even if it fails.
    fn forget_context(&mut self, code: u32) {
        const SET_META_CONTEXT: u32 = 10;
        if code == SET_META_CONTEXT {
            self.context_of = None;
        }
    }
}

/// Rejects options that require TLS first; returns `None` for permitted options.
fn refuse_in_the_clear(code: u32, to: &mut Vec<u8>) -> Option<Step> {
    const EXPORT_NAME: u32 = 1;
    const ABORT: u32 = 2;
    const START_TLS: u32 = 5;
    match code {
        ABORT | START_TLS => None,
        // The protocol has no way to say no here.
        EXPORT_NAME => Some(Step::End),
        _ => {
            option_reply(to, code, ReplyKind::TlsRequired, b"this server requires TLS");
            Some(Step::Continue)
        }
    }
}

fn refuse(code: u32, error: &Error, to: &mut Vec<u8>) {
    let kind = match error.kind() {
        ErrorKind::Missing => ReplyKind::UnknownExport,
        ErrorKind::Refused => ReplyKind::Policy,
        _ => ReplyKind::Platform,
    };
    option_reply(to, code, kind, first_part(&error.to_string()).as_bytes());
}
