//! `paceline check`: what is wrong with a configuration.

use crate::{Failure, exit};
use clap::Args;
use paceline::{Config, Finding};
use serde::Serialize;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Find what is wrong or doubtful in a configuration file, with line numbers and what to do
#[derive(Debug, Args)]
#[command(after_help = "\
Without FILE it is the nearest paceline.toml, here or in a folder above, or what PACELINE_CONFIG names.

JSON is an array of objects: line, column, error (else it is only doubtful), kind, what, help.

Exit status: 0 when nothing is wrong; 1 when something is, or something is doubtful with --strict; 2
when there is no file to check.")]
pub struct CheckArgs {
    /// The file
    #[arg(env = "PACELINE_CONFIG")]
    file: Option<PathBuf>,
    /// What is only doubtful is wrong as well
    #[arg(long)]
    strict: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Found<'a> {
    line: usize,
    column: usize,
    error: bool,
    kind: &'a str,
    what: &'a str,
    help: &'a str,
}

/// Runs the command and tells the exit status.
///
/// # Errors
/// When there is no file, or it cannot be read.
pub fn check(args: &CheckArgs) -> Result<u8, Failure> {
    let file = found(args.file.as_deref())?;
    let shown = file.display();
    let text =
        std::fs::read_to_string(&file).map_err(|error| format!("cannot read {shown}: {error}"))?;
    let (config, findings) = Config::check(&text);
    let mut out = io::stdout().lock();
    if args.json {
        let found: Vec<_> = findings.iter().map(Found::from).collect();
        writeln!(out, "{}", serde_json::to_string(&found)?)?;
    } else {
        for Finding { line, column, is_error, kind, what, help, .. } in &findings {
            let weight = if *is_error { "wrong" } else { "doubtful" };
            writeln!(out, "{shown}:{line}:{column}: {weight}: {what} [{kind}]\n    {help}")?;
        }
        let wrong = findings.iter().filter(|finding| finding.is_error).count();
        let doubtful = findings.len() - wrong;
        match findings.as_slice() {
            [] => {
                let limits: usize = config.scopes.iter().map(|(_, limits)| limits.len()).sum();
                let (scopes, rules) = (config.scopes.len(), config.rules.len());
                writeln!(
                    out,
                    "{shown}: {scopes} scopes with {limits} limits, {rules} rules; nothing is wrong"
                )?;
            }
            _ => writeln!(out, "{shown}: {wrong} wrong, {doubtful} doubtful")?,
        }
    }
    let is_bad = findings.iter().any(|finding| finding.is_error || args.strict);
    Ok(if is_bad { exit::FAILED } else { exit::OK })
}

/// The file that is meant.
fn found(named: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(file) = named {
        return Ok(file.to_owned());
    }
    let here = std::env::current_dir()?;
    Config::find(&here).ok_or_else(|| {
        format!("there is no {} here or in a folder above; name a file", Config::NAME).into()
    })
}

impl<'a> From<&'a Finding> for Found<'a> {
    fn from(found: &'a Finding) -> Self {
        Self {
            line: found.line,
            column: found.column,
            error: found.is_error,
            kind: found.kind,
            what: &found.what,
            help: &found.help,
        }
    }
}
