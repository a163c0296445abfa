//! The receiving side: one state machine that finds a session, joins it, puts chunks together and asks for what lacks.
//!
//! [`machine`] joins the parts: [`wants`] (what each chunk's state is), [`assembly`] (symbols into chunks), [`asking`]
//! (what to ask for, and when), [`fetching`] (what came wrong and is fetched from the sender alone). It holds a bounded number of chunks; a symbol that finds no room is lost, and repair
//! makes it right.

mod asking;
mod assembly;
mod fetching;
mod machine;
mod wants;

pub use machine::{Receiver, ReceiverEvent, ReceiverOptions, ReceiverStatistics};
