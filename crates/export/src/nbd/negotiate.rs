//! What client and server agree on before the first request. Pure: options in, replies out.

use std::sync::Arc;

use platter_image::{Error, ErrorKind, Result};
use platter_vdisk::BlockDevice;

use super::wire::{
    BASE_ALLOCATION, BASE_ALLOCATION_ID, CLIENT_FIXED_NEWSTYLE, CLIENT_NO_ZEROES, INFO_BLOCK_SIZE,
    INFO_DESCRIPTION, INFO_EXPORT, INFO_NAME, NAME_BYTES_MAX, OptionRequest, PAYLOAD_BYTES_MAX, ReplyKind,
    first_part, option_reply, transmission_flags,
};
use crate::Exports;

/// Most options of one client: whoever asks for more never comes to the point.
const OPTIONS_MAX: u32 = 256;
/// Least length and alignment of a request: devices take any.
const BLOCK_BYTES_MIN: u32 = 1;
/// What clients should read: about what a block of an image holds.
const BLOCK_BYTES_READ: u32 = 64 << 10;
/// What clients should write: a page of theirs.
const BLOCK_BYTES_WRITE: u32 = 4 << 10;
/// Zeros behind the answer to `EXPORT_NAME`, for clients that do not say they can go without.
const OLD_ZEROES: usize = 124;

/// What was agreed: from now on requests come.
#[derive(Clone)]
pub struct Agreed {
    /// The export's own name.
    pub name: String,
    /// The export.
    pub device: Arc<dyn BlockDevice>,
    /// Replies come in chunks.
    pub structured: bool,
    /// Extents may be asked for.
    pub contexts: bool,
}

/// What follows an option.
pub enum Step {
    /// The next option.
    Continue,
    /// Requests.
    Transmit(Agreed),
    /// TLS, and then the next option.
    StartTls,
    /// Nothing: the client said goodbye, or asked in the old way for what is not there, or where it is not.
    End,
}

/// Whether there is TLS below.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Security {
    /// It cannot be had.
    Clear,
    /// Nothing else can be had.
    Required,
    /// It began.
    Tls,
}

/// One client's negotiation.
pub struct Negotiation<'a> {
    exports: &'a dyn Exports,
    security: Security,
    no_zeroes: bool,
    structured: bool,
    /// The export whose allocation the client wants to ask for.
    context_of: Option<String>,
    options: u32,
}

impl<'a> Negotiation<'a> {
    /// Begins with the flags by which the client answers the greeting.
    ///
    /// # Errors
    /// `Corrupt` when it has flags that we did not offer.
    pub fn new(exports: &'a dyn Exports, client_flags: u32) -> Result<Self> {
        if client_flags & !(CLIENT_FIXED_NEWSTYLE | CLIENT_NO_ZEROES) != 0 {
            return Err(Error::corrupt(format!(
                "the client has flags {client_flags:#x}, which we did not offer"
            )));
        }
        let no_zeroes = client_flags & CLIENT_NO_ZEROES != 0;
        let security = Security::Clear;
        Ok(Self { exports, security, no_zeroes, structured: false, context_of: None, options: 0 })
    }

    /// From now on the client is told nothing, not even the names of exports, until it has asked for TLS: what the
    /// protocol document calls FORCEDTLS.
    pub fn require_tls(&mut self) {
        self.security = Security::Required;
    }

    /// Answers option `code`: appends replies to `to`, and says what follows.
    ///
    /// # Errors
    /// `Corrupt` when the connection must end without a reply: too many options, or wrong data where the protocol has
    /// no reply for that.
    pub fn handle(&mut self, code: u32, data: &[u8], to: &mut Vec<u8>) -> Result<Step> {
        self.options += 1;
        if self.options > OPTIONS_MAX {
            return Err(Error::corrupt(format!("over {OPTIONS_MAX} options and no end")));
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
                reply(ReplyKind::Invalid, b"structured replies are agreed already");
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
                Security::Clear => reply(ReplyKind::Unsupported, b"no TLS here"),
                Security::Tls => reply(ReplyKind::Invalid, b"there is TLS already"),
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

    /// The name itself, or that of the only export for the empty name.
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
        // The protocol has no way to say no here.
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
            option_reply(to, code, ReplyKind::Invalid, b"structured replies come first");
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

    /// Each wish for contexts replaces the one before, even if it fails.
    fn forget_context(&mut self, code: u32) {
        const SET_META_CONTEXT: u32 = 10;
        if code == SET_META_CONTEXT {
            self.context_of = None;
        }
    }
}

/// Answers what is asked before TLS, where there must be TLS; `None` for what may be asked.
fn refuse_in_the_clear(code: u32, to: &mut Vec<u8>) -> Option<Step> {
    const EXPORT_NAME: u32 = 1;
    const ABORT: u32 = 2;
    const START_TLS: u32 = 5;
    match code {
        ABORT | START_TLS => None,
        // The protocol has no way to say no here.
        EXPORT_NAME => Some(Step::End),
        _ => {
            option_reply(to, code, ReplyKind::TlsRequired, b"this server wants TLS");
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
