//! Negotiation: the greeting, options and the replies to them (protocol document, "Newstyle negotiation" and "Option
//! types").

use platter_image::{Error, Result};

use super::{take_u16, take_u32, take_u64};

/// The server's greeting: two magic numbers, and flags for fixed newstyle and no zeros.
pub const GREETING: [u8; 18] = *b"NBDMAGICIHAVEOPT\x00\x03";
/// The client supports fixed newstyle.
pub const CLIENT_FIXED_NEWSTYLE: u32 = 1;
/// The client declines zeros after the reply to `EXPORT_NAME`.
pub const CLIENT_NO_ZEROES: u32 = 2;

/// Bytes before an option's data.
pub const OPTION_HEADER_BYTES: usize = 16;
/// Maximum bytes of an option's data: longer data ends the connection before anything is allocated.
pub const OPTION_BYTES_MAX: u32 = 64 << 10;
/// Maximum bytes of a name or any other string.
pub const NAME_BYTES_MAX: usize = 4096;

/// Size and flags of the export.
pub const INFO_EXPORT: u16 = 0;
/// The canonical name of the export, which can differ from the requested one.
pub const INFO_NAME: u16 = 1;
/// A description for people.
pub const INFO_DESCRIPTION: u16 = 2;
/// Minimum, preferred and maximum length of requests.
pub const INFO_BLOCK_SIZE: u16 = 3;

const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

/// The header of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHeader {
    /// The option's code.
    pub code: u32,
    /// Length of its data, at most [`OPTION_BYTES_MAX`].
    pub length: u32,
}

impl OptionHeader {
    /// Reads one.
    ///
    /// # Errors
    /// `Corrupt` when the magic number is wrong or the data too long.
    pub fn parse(bytes: &[u8; OPTION_HEADER_BYTES]) -> Result<Self> {
        let mut rest = bytes.as_slice();
        let fields = (take_u64(&mut rest), take_u32(&mut rest), take_u32(&mut rest));
        let (Some(magic), Some(code), Some(length)) = fields else {
            return Err(Error::bug("an option's header has sixteen bytes"));
        };
        if magic != OPTION_MAGIC {
            return Err(Error::corrupt(format!("an option begins with {magic:#018x}")));
        }
        if length > OPTION_BYTES_MAX {
            return Err(Error::corrupt(format!("option {code} has {length} bytes, over {OPTION_BYTES_MAX}")));
        }
        Ok(Self { code, length })
    }
}

/// An option of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionRequest<'a> {
    /// Old way to start transmission: the reply is the export's size, or the connection ends.
    ExportName(&'a str),
    /// Abort.
    Abort,
    /// List all exports.
    List,
    /// Start TLS.
    StartTls,
    /// Information about an export; with `go`, also start transmission.
    Info {
        /// Whether transmission starts.
        go: bool,
        /// The export.
        name: &'a str,
        /// Requested kinds of information.
        wishes: Vec<u16>,
    },
    /// Use structured replies.
    StructuredReply,
    /// List metadata contexts, or select them with `set`.
    MetaContext {
        /// Whether contexts are selected instead of listed.
        set: bool,
        /// The export.
        name: &'a str,
        /// Patterns of the contexts.
        queries: Vec<&'a str>,
    },
    /// Any other option.
    Unknown,
}

impl<'a> OptionRequest<'a> {
    /// Reads the data of option `code`.
    ///
    /// # Errors
    /// `Corrupt` when the data do not match the option.
    pub fn parse(code: u32, data: &'a [u8]) -> Result<Self> {
        let request = match code {
            1 => text(data).map(Self::ExportName),
            2 => Some(Self::Abort),
            3 => data.is_empty().then_some(Self::List),
            5 => data.is_empty().then_some(Self::StartTls),
            6 => info(data, false),
            7 => info(data, true),
            8 => data.is_empty().then_some(Self::StructuredReply),
            9 => meta_context(data, false),
            10 => meta_context(data, true),
            _ => Some(Self::Unknown),
        };
        request.ok_or_else(|| Error::corrupt(format!("option {code} has data that are not its own")))
    }
}

fn info(mut data: &[u8], go: bool) -> Option<OptionRequest<'_>> {
    let name = counted_text(&mut data)?;
    let count = usize::from(take_u16(&mut data)?);
    if data.len() != count * 2 {
        return None;
    }
    let wishes = std::iter::from_fn(|| take_u16(&mut data)).collect();
    Some(OptionRequest::Info { go, name, wishes })
}

fn meta_context(mut data: &[u8], set: bool) -> Option<OptionRequest<'_>> {
    let name = counted_text(&mut data)?;
    let count = take_u32(&mut data)?;
    let mut queries = Vec::new();
    // Each query has at least four bytes, so the data length limits their number.
    for _ in 0..count {
        queries.push(counted_text(&mut data)?);
    }
    data.is_empty().then_some(OptionRequest::MetaContext { set, name, queries })
}

fn counted_text<'a>(data: &mut &'a [u8]) -> Option<&'a str> {
    let length = usize::try_from(take_u32(data)?).ok()?;
    let (bytes, rest) = data.split_at_checked(length)?;
    *data = rest;
    text(bytes)
}

fn text(bytes: &[u8]) -> Option<&str> {
    (bytes.len() <= NAME_BYTES_MAX).then(|| std::str::from_utf8(bytes).ok())?
}

/// Type of a reply to an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ReplyKind {
    /// Success.
    Acknowledged = 1,
    /// An export name.
    Server = 2,
    /// Information about an export.
    Info = 3,
    /// A metadata context.
    MetaContext = 4,
    /// Unknown option.
    Unsupported = (1 << 31) + 1,
    /// Forbidden.
    Policy = (1 << 31) + 2,
    /// Invalid data, or not allowed at this time.
    Invalid = (1 << 31) + 3,
    /// The server failed.
    Platform = (1 << 31) + 4,
    /// TLS is required first.
    TlsRequired = (1 << 31) + 5,
    /// Unknown export.
    UnknownExport = (1 << 31) + 6,
}

/// Appends a reply to option `code`.
pub fn option_reply(to: &mut Vec<u8>, code: u32, kind: ReplyKind, data: &[u8]) {
    to.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    to.extend_from_slice(&code.to_be_bytes());
    to.extend_from_slice(&(kind as u32).to_be_bytes());
    to.extend_from_slice(&(data.len() as u32).to_be_bytes());
    to.extend_from_slice(data);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counted(text: &str) -> Vec<u8> {
        [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
    }

    proptest! {
        /// Any bytes are an option or an error, and what is said of many queries allocates nothing.
        #[test]
        fn any_bytes(code in 0..12u32, data in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(OptionRequest::MetaContext { queries, .. }) = OptionRequest::parse(code, &data) {
                prop_assert!(queries.len() * 4 <= data.len());
            }
        }

        #[test]
        fn what_was_written_is_read(
            name in "[a-z/@é]{0,40}",
            wishes in prop::collection::vec(any::<u16>(), 0..5),
            queries in prop::collection::vec("[a-z:]{0,20}", 0..5),
        ) {
            let mut data = counted(&name);
            data.extend_from_slice(&(wishes.len() as u16).to_be_bytes());
            wishes.iter().for_each(|wish| data.extend_from_slice(&wish.to_be_bytes()));
            prop_assert_eq!(
                OptionRequest::parse(7, &data).unwrap(),
                OptionRequest::Info { go: true, name: &name, wishes }
            );
            let mut data = counted(&name);
            data.extend_from_slice(&(queries.len() as u32).to_be_bytes());
            queries.iter().for_each(|query| data.extend_from_slice(&counted(query)));
            let read = OptionRequest::parse(9, &data).unwrap();
            let queries = queries.iter().map(String::as_str).collect();
            prop_assert_eq!(read, OptionRequest::MetaContext { set: false, name: &name, queries });
            for cut in 0..data.len() {
                prop_assert!(OptionRequest::parse(9, &data[..cut]).is_err());
            }
        }
    }

    #[test]
    fn an_option_that_is_too_long_is_an_error_before_its_data() {
        let mut header = *b"IHAVEOPT\0\0\0\x07\0\x01\0\0";
        assert_eq!(OptionHeader::parse(&header).unwrap(), OptionHeader { code: 7, length: OPTION_BYTES_MAX });
        header[15] = 1;
        assert!(OptionHeader::parse(&header).is_err());
        header[12] = 0xff;
        assert!(OptionHeader::parse(&header).is_err());
    }

    #[test]
    fn another_magic_number_is_an_error() {
        assert!(OptionHeader::parse(b"IHAVEOPS\0\0\0\x07\0\0\0\0").is_err());
    }

    #[test]
    fn a_name_has_a_limit() {
        let name = "n".repeat(NAME_BYTES_MAX);
        assert!(OptionRequest::parse(1, name.as_bytes()).is_ok());
        assert!(OptionRequest::parse(1, format!("{name}n").as_bytes()).is_err());
        assert!(OptionRequest::parse(1, &[0xff]).is_err());
    }
}
