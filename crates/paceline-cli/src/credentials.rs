//! Headers that a command sends and never shows.

use crate::Failure;
use clap::Args;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use std::path::PathBuf;

/// Where they come from: not from the command line, which others on the machine can read.
#[derive(Debug, Args)]
pub(crate) struct Credentials {
    /// Send `Authorization: Bearer` with the value of this environment variable
    #[arg(long, value_name = "VAR")]
    bearer_env: Option<String>,
    /// Send a header with the value of an environment variable; repeatable
    #[arg(long, value_name = "NAME=VAR")]
    header_env: Vec<String>,
    /// Send the headers of this file, a `Name: value` a line
    #[arg(long, value_name = "FILE")]
    header_file: Option<PathBuf>,
}

impl Credentials {
    /// Headers from the environment and the header file. Errors name where a value should have come
    /// from, never the value.
    pub(crate) fn headers(&self) -> Result<HeaderMap, Failure> {
        let mut headers = HeaderMap::new();
        if let Some(file) = &self.header_file {
            let shown = file.display();
            let text = std::fs::read_to_string(file)
                .map_err(|error| format!("cannot read {shown}: {error}"))?;
            for (number, line) in
                (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty())
            {
                let bad = || format!("{shown}, line {number}: expected Name: value");
                let (name, value) = line.split_once(':').ok_or_else(bad)?;
                headers.insert(header_name(name).ok_or_else(bad)?, secret(value).ok_or_else(bad)?);
            }
        }
        for named in &self.header_env {
            let bad = || format!("bad --header-env {named:?}: expected NAME=VAR");
            let (name, var) = named.split_once('=').ok_or_else(bad)?;
            headers.insert(header_name(name).ok_or_else(bad)?, from_env(var, "")?);
        }
        if let Some(var) = &self.bearer_env {
            headers.insert(AUTHORIZATION, from_env(var, "Bearer ")?);
        }
        Ok(headers)
    }
}

fn header_name(name: &str) -> Option<HeaderName> {
    name.trim().parse().ok()
}

fn secret(value: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(value.trim()).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn from_env(var: &str, prefix: &str) -> Result<HeaderValue, Failure> {
    let value = std::env::var(var).map_err(|_| format!("environment variable {var} is not set"))?;
    let bad = || format!("environment variable {var} holds what no header can carry");
    Ok(secret(&format!("{prefix}{}", value.trim())).ok_or_else(bad)?)
}
