//! The `platter` command: parses arguments, prints output, returns exit codes. The work itself is in `platter-jobs`.

mod agent;
mod arguments;
mod command;
mod file_names;
mod interruption;
mod join_key;
mod output;
mod probe;
mod question;
mod served_files;
mod server;
mod sizes;
mod target;
mod terminal;
mod unlock;
mod usage;
mod visible;

use std::ffi::OsString;
use std::process::ExitCode;

use platter_jobs::{ErrorKind, StoreLocation};

use arguments::{Arguments, Command};
use command::push::Direction;
use output::Output;

fn main() -> ExitCode {
    platter_jobs::make_files_private();
    let words: Vec<OsString> = std::env::args_os().collect();
    let arguments = usage::parse(&words).unwrap_or_else(|error| usage::exit(&words, &error));
    let output = Output::new(arguments.json, arguments.quiet);
    match server::location(&arguments) {
        Ok(store) => match usage::check(&arguments.command, &store) {
            Ok(()) => run(&store, &arguments, &output),
            Err(error) => usage::exit(&words, &error),
        },
        Err(error) if error.kind() == ErrorKind::Refused => usage::exit(&words, &usage::refused(&error)),
        Err(error) => output.fail(&error),
    }
}

fn run(store: &StoreLocation, arguments: &Arguments, output: &Output) -> ExitCode {
    if let Err(error) = unlock::for_command(store, arguments, output) {
        return output.fail(&error);
    }
    let result = match &arguments.command {
        Command::Init(options) => command::init::run(store, options, &arguments.unlock, output),
        Command::Encryption(options) => command::encryption::run(store, options, &arguments.unlock, output),
        Command::Capture(options) => command::capture::run(store, options, output),
        Command::Images(options) => command::images::run(store, options, output),
        Command::Show(options) => command::show::run(store, options, output),
        Command::History(options) => command::history::run(store, options, output),
        Command::Log(options) => command::log::run(store, options, output),
        Command::Diff(options) => command::diff::run(store, options, output),
        Command::Analyze(options) => command::analyze::run(store, options, output),
        Command::Ls(options) => command::ls::run(store, options, output),
        Command::Find(options) => command::find::run(store, options, output),
        Command::Cat(options) => command::cat::run(store, options),
        Command::Cp(options) => command::cp::run(store, options, output),
        Command::Mount(options) => command::mount::run(store, options, output),
        Command::Clone(options) => command::clone::run(store, options, output),
        Command::Rename(options) => command::rename::run(store, options, output),
        Command::Protect(options) => command::protect::run(store, options, true, output),
        Command::Unprotect(options) => command::protect::run(store, options, false, output),
        Command::Quota(options) => command::quota::run(store, options, output),
        Command::Forget(options) => command::forget::run(store, options, output),
        Command::Key(options) => command::key::run(options, output),
        Command::Sign(options) => command::sign::run(store, options, output),
        Command::Verify(options) => command::verify::run(store, options, output),
        Command::Lock(options) => command::lock::run(store, options, output),
        Command::Install(options) => command::install::run(store, options, output),
        Command::Export(options) => command::export::run(store, options, output),
        Command::Gc(options) => command::gc::run(store, options, output),
        Command::Check(options) => command::check::run(store, options, output),
        Command::Heal(options) => command::heal::run(store, options, &arguments.server, output),
        Command::Push(options) => {
            command::push::run(store, options, Direction::Push, &arguments.server, output)
        }
        Command::Pull(options) => {
            command::push::run(store, options, Direction::Pull, &arguments.server, output)
        }
        Command::Follow(options) => command::follow::run(store, options, &arguments.server, output),
        Command::Promote(options) => command::promote::run(store, options, &arguments.server, output),
        Command::Copies(options) => command::copies::run(store, options, output),
        Command::Rebuild(options) => command::rebuild::run(store, options, output),
        Command::DiscardInterrupted => command::discard_interrupted::run(store, output),
        Command::Cast(options) => command::cast::run(store, options, output),
        Command::Receive(options) => command::receive::run(options, &arguments.server, output),
        Command::Casts(options) => command::casts::run(store, options, output),
        Command::Attach(options) => command::attach::run(store, options, output),
        Command::Disks(options) => command::disks::run(store, options, output),
        Command::Node(options) => command::node::run(store, options, output),
        Command::Detach(options) => command::detach::run(store, options, output),
        Command::Publish(options) => command::publish::run(store, options, output),
        Command::Hoard(options) => command::hoard::run(store, options, output),
        Command::Discard(options) => command::discard::run(store, options, output),
        Command::Serve(options) => command::serve::run(store, options, output),
        Command::Trace(options) => command::trace::run(options, output),
        Command::Completions(options) => command::completions::run(options),
    };
    match result {
        Ok(code) => output.end(code),
        Err(error) => output.fail(&error),
    }
}
