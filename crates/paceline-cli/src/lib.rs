//! The `paceline` command as a library: [`run`] is what the cargo-built binary and the Python wheel
//! both call.

pub mod batch;
pub mod check;
mod credentials;
pub mod limits;
mod manual;
pub mod probe;
pub mod sandbox;
pub mod serve;
pub mod simulate;
mod storage;
mod times;
pub mod top;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use std::ffi::OsString;
use std::io::{self, Write as _};

/// Paces API calls so that the provider never has a reason to answer 429.
#[derive(Debug, Parser)]
#[command(name = "paceline", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Send a file of requests as fast as the limits allow, and write the answers
    Batch(Box<batch::BatchArgs>),
    Probe(probe::ProbeArgs),
    Explain(limits::ExplainArgs),
    Check(check::CheckArgs),
    Status(limits::StatusArgs),
    List(limits::ListArgs),
    Set(limits::SetArgs),
    Clear(limits::ClearArgs),
    Usage(limits::UsageArgs),
    Top(top::TopArgs),
    Simulate(Box<simulate::SimulateArgs>),
    Serve(serve::ServeArgs),
    /// Run a local server that really enforces limits
    Sandbox(sandbox::SandboxArgs),
    /// Print shell completions
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, for man -l -
    Manual,
}

/// Exit statuses.
pub mod exit {
    /// Everything succeeded.
    pub const OK: u8 = 0;
    /// Something did not succeed, or could not be reached: the messages and the output say what.
    pub const FAILED: u8 = 1;
    /// The command line, the input or the output is unusable: nothing was sent.
    pub const USAGE: u8 = 2;
    /// Stopped by Ctrl-C; what was in flight was finished.
    pub const INTERRUPTED: u8 = 130;
}

/// Runs the command line `args`, the program's name first, and tells the exit status.
pub fn run(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> u8 {
    let matches = Cli::command().try_get_matches_from(args);
    let read = matches.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let (cli, matches) = match read {
        Ok(read) => read,
        Err(mut error) => {
            hide_login(&mut error);
            // Printing can only fail where nobody is left to read.
            drop(error.print());
            return if error.use_stderr() { exit::USAGE } else { exit::OK };
        }
    };
    let result = match cli.command {
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "paceline", &mut text);
            io::stdout().write_all(&text).map(|()| exit::OK).map_err(Into::into)
        }
        Command::Manual => manual::print(&Cli::command()),
        Command::Batch(args) => on_runtime(batch::run(*args)),
        Command::Probe(args) => on_runtime(probe::run(args)),
        Command::Check(args) => check::check(&args),
        Command::Explain(args) => limits::explain(&args),
        Command::Status(args) => limits::status(&args),
        Command::List(args) => limits::list(&args),
        Command::Set(args) => limits::set(args),
        Command::Clear(args) => limits::clear(&args),
        Command::Usage(args) => limits::usage(&args),
        Command::Top(args) => top::top(&args),
        Command::Simulate(args) if args.serves() => {
            let link = matches.subcommand_matches("simulate").map(serve::link).unwrap_or_default();
            on_runtime(serve::page(args.site(), link))
        }
        Command::Simulate(args) => simulate::simulate(&args),
        Command::Serve(args) => on_runtime(serve::serve(args)),
        Command::Sandbox(args) => on_runtime(async {
            sandbox::run(args, io::stdout(), sandbox::interrupted()).await?;
            Ok(exit::OK)
        }),
    };
    result.unwrap_or_else(|error| {
        drop(writeln!(io::stderr(), "paceline: {error}"));
        match error.downcast_ref() {
            // Nothing was wrong with what was said: the same may succeed in a moment.
            Some(paceline::Error::Unavailable(_)) => exit::FAILED,
            _ => exit::USAGE,
        }
    })
}

/// Takes what may be a password out of a complaint about an argument.
fn hide_login(error: &mut clap::Error) {
    for kind in [ContextKind::InvalidArg, ContextKind::InvalidValue] {
        if let Some(ContextValue::String(text)) = error.get(kind)
            && let Some((_, visible)) = text.rsplit_once('@')
        {
            let shown = ContextValue::String(format!("…@{visible}"));
            error.insert(kind, shown);
        }
    }
}

type Failure = Box<dyn std::error::Error>;

fn on_runtime(work: impl Future<Output = Result<u8, Failure>>) -> Result<u8, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(work);
    // A thread that still reads the standard input must not keep the process.
    runtime.shutdown_background();
    result
}
